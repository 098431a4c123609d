"""What do people watch? The demo: its story, its picture, its end."""
