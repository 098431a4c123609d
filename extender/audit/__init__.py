"""What makes no sense as it is written, found before anybody waits because of it."""
