"""How our own draft heads were made: from prompts to the target's answers, from answers to weights."""
