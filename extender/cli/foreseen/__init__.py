"""What do people type to see what would happen?"""
