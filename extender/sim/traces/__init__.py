"""What came to other clusters, as they recorded it?"""
