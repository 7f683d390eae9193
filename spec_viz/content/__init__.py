"""Loads and checks what lies in `lessons/`: a teacher adds files there, not Python."""
