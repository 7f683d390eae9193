"""Questions that want an explanation: how, why, the difference between two things."""

from __future__ import annotations

from spec_viz.training.pen import Pen, Words

# What one can ask "what is" and "how does it work" about.
NATURE = (
    "a rainbow", "photosynthesis", "the water cycle", "an earthquake", "a volcano", "the tide", "lightning", "fog",
    "gravity", "a solar eclipse", "erosion", "a glacier", "evaporation", "magnetism", "static electricity", "an echo",
    "pollination", "migration of birds", "hibernation", "a food chain", "a coral reef", "the greenhouse effect",
    "a desert climate", "the ozone layer", "a comet", "a black hole", "an aurora", "friction", "buoyancy",
    "refraction of light",
)  # fmt: skip
BODY = (
    "digestion", "the heart", "breathing", "sleep", "the immune system", "memory", "muscle growth", "a fever",
    "the skeleton", "hearing", "eyesight", "taste", "balance", "a reflex", "a kidney", "blood pressure", "a vaccine",
    "hunger", "body temperature", "healing of a wound",
)  # fmt: skip
MACHINES = (
    "a bicycle", "a refrigerator", "a microwave oven", "a steam engine", "a battery", "a solar panel", "a telescope",
    "a lock and key", "a sewing machine", "an elevator", "a wind turbine", "a camera", "a thermometer", "a compass",
    "a printing press", "a radio", "a vacuum cleaner", "a pump", "a sailing boat", "a hot air balloon", "a dam",
    "a traffic light", "a barcode scanner", "a loudspeaker", "a touch screen",
)  # fmt: skip
COMPUTING = (
    "a variable in a program", "a loop in a program", "recursion", "a database", "a search engine", "encryption",
    "a web browser", "an operating system", "a compiler", "a neural network", "a computer virus", "cloud storage",
    "a hash table", "the binary system", "an algorithm", "a router", "compression of files", "machine translation",
    "a spreadsheet", "version control", "a language model", "a cache", "a sorting algorithm", "a password manager",
)  # fmt: skip
SOCIETY = (
    "inflation", "a budget", "an election", "a contract", "insurance", "a loan", "interest", "a constitution",
    "supply and demand", "a trade union", "a patent", "a library catalogue", "public transport", "recycling",
    "a census",
    "a museum", "a jury", "a tax", "a mortgage", "a charity", "a newspaper", "copyright", "a pension", "an embassy",
)  # fmt: skip
MATHS = (
    "a prime number", "a fraction", "a percentage", "probability", "the average of a list", "an equation", "a graph",
    "the area of a circle", "a square root", "a negative number", "a proof", "a vector", "a right angle", "symmetry",
    "the median", "exponential growth", "a logarithm", "a set", "a triangle", "rounding",
)  # fmt: skip
GROUPS = (NATURE, BODY, MACHINES, COMPUTING, SOCIETY, MATHS)

WHY = (
    "the sky looks blue", "leaves turn red in autumn", "ice floats on water", "bread rises",
    "the moon changes its shape",
    "cats purr", "salt melts ice", "iron rusts", "we yawn", "stars twinkle", "onions make us cry", "the sea is salty",
    "ships do not sink", "metal feels colder than wood", "soap removes grease", "popcorn pops", "birds sing at dawn",
    "we dream", "thunder comes after lightning", "summer days are long", "wet clothes dry in the wind",
    "a mirror shows left and right exchanged", "bees dance", "some people are left-handed",
    "cities are warmer at night",
    "milk turns sour", "planes leave white trails", "we have time zones", "money has value", "languages change",
    "old paper turns yellow", "a magnet points north", "spiders do not stick to their own webs", "sand gets hot",
    "deserts are cold at night", "fish can breathe under water", "plants bend towards light", "batteries run down",
)  # fmt: skip

HOW_TO = (
    "boil an egg", "change a bicycle tyre", "write a letter of application", "learn twenty new words a day",
    "plan a vegetable garden", "save money every month", "prepare for an interview", "read a map", "tie a bow",
    "clean a window", "make a simple budget", "grow tomatoes on a balcony", "wrap a present", "iron a shirt",
    "fold a paper boat", "take good notes", "pack a suitcase", "make a cup of tea", "sharpen a pencil with a knife",
    "remove a stain from a shirt", "teach a dog to sit", "bake a simple cake", "give a short talk",
    "repair a torn page",
    "choose a good password", "measure the height of a tree", "start a book club", "sort old photographs",
    "organise a small party", "learn a poem by heart", "write a good summary", "check a fact", "test a small program",
    "back up a computer", "name a variable well", "find a mistake in a calculation", "keep a diary",
)  # fmt: skip

WORDS: Words = {
    "audience": (
        "a child of ten", "a beginner", "a new student", "my grandmother", "a curious teenager", "a busy manager",
        "someone who has never heard of it", "a class of twelve-year-olds", "a friend who hates science", "a tourist",
        "a journalist", "a future teacher",
    ),
    "manner": (
        "in simple words", "in three sentences", "step by step", "with an example from the kitchen",
        "with a comparison from daily life", "in one short paragraph", "without technical terms",
        "in about eighty words",
        "as clearly as you can", "with one example", "and name one common mistake", "and say why it matters",
        "with an example from sport", "in two short paragraphs",
    ),
    "why": WHY,
    "task": HOW_TO,
}  # fmt: skip

ABOUT = (
    "Explain {topic} {manner}.",
    "What is {topic}? Explain it to {audience}.",
    "How would you explain {topic} to {audience}?",
    "How does {topic} work? Please answer {manner}.",
    "Explain to {audience} how {topic} works, {manner}.",
    "I have read about {topic}, but I do not understand it. Can you explain it {manner}?",
    "What are the most important facts about {topic}? Answer for {audience}.",
    "Where do we meet {topic} in daily life? Explain {manner}.",
    "Describe {topic} {manner}.",
)
BOTH = (
    "What is the difference between {topic} and {other}?",
    "Compare {topic} with {other} {manner}.",
    "How are {topic} and {other} connected? Explain it to {audience}.",
    "Which is easier to understand, {topic} or {other}? Give reasons {manner}.",
)
WHY_AND_HOW = (
    "Why is it that {why}? Explain {manner}.",
    "Explain to {audience} why {why}.",
    "My friend asked me why {why}. What should I answer? Explain {manner}.",
    "How do I {task}? Explain {manner}.",
    "Explain to {audience} how to {task}.",
    "What should I know before I {task}? Answer {manner}.",
)


def write(pen: Pen) -> str:
    """One question whose answer explains something."""
    kind = pen.number(1, 10)
    if kind > 7:
        return pen.fill(pen.pick(WHY_AND_HOW), WORDS)
    topic, other = pen.some(pen.pick(GROUPS), 2)
    template = pen.pick(BOTH if kind > 5 else ABOUT)
    return pen.fill(template, {**WORDS, "topic": (topic,), "other": (other,)})
