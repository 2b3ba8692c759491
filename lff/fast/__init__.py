"""What makes it quick; each piece is held equal to its plain twin by a test."""
