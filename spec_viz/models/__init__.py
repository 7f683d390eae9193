"""Which models exist, where their weights come from, how they are loaded and placed on a device."""
