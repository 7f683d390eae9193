"""What counts as yes and as no in a setting that switches something on or off."""

YES = ("1", "true", "yes", "on")
NO = ("", "0", "false", "no", "off")
