"""Lists, tables, steps, sequences: answers with a form that repeats, where a drafter has an easy time."""

from __future__ import annotations

from spec_viz.training.pen import Pen, Words

WORDS: Words = {
    "count": ("three", "four", "five", "six", "seven", "eight", "nine", "ten", "twelve"),
    "things": (
        "animals that live in {habitat}", "fruits", "vegetables", "musical instruments", "sports", "kitchen tools",
        "jobs in {workplace}", "things to take to {outing}", "words for colours", "ways to relax", "school subjects",
        "capital cities", "trees", "flowers for a {garden} garden", "healthy snacks", "warm drinks", "board games",
        "programming languages", "parts of a car", "parts of a plant", "materials for building a house",
        "inventions of the last two centuries", "questions for an interview in {workplace}", "gifts for {receiver}",
        "rules for {workplace}", "safety rules for {outing}", "ideas for a school project about {subject}",
        "topics for a talk about {subject}", "book titles about {subject}", "names for a {pet}",
        "things that are {adjective}",
        "reasons to visit {habitat}", "sentences about {subject}", "facts about {subject}", "uses of {material}",
        "words that rhyme with \"{rhyme}\"", "synonyms for \"{word}\"", "hobbies for {receiver}", "meals with {food}",
    ),
    "habitat": (
        "the sea", "the forest", "the desert", "the mountains", "the jungle", "a river", "the Arctic", "a city park",
    ),
    "workplace": (
        "a hospital", "a school", "a restaurant", "a library", "an airport", "a laboratory", "a theatre", "a bakery",
        "a factory", "an office",
    ),
    "outing": (
        "a picnic", "the beach", "a camping trip", "a long flight", "a hike in winter", "a concert", "a boat trip",
        "a bicycle tour",
    ),
    "garden": ("small", "dry", "shady", "sunny", "wild", "children's"),
    "receiver": (
        "a grandfather", "a child of six", "a new neighbour", "a teacher", "a colleague", "a couple", "a teenager",
        "a friend who cooks", "a cat owner",
    ),
    "subject": (
        "the moon", "the ocean", "trains", "bees", "the history of writing", "rivers", "electricity", "ancient Egypt",
        "the weather", "bridges", "bread", "chess", "computers", "sleep", "the human heart", "recycling", "volcanoes",
        "music", "teamwork", "snow", "maps", "clocks", "money", "languages", "space travel", "wood",
    ),
    "pet": ("parrot", "kitten", "puppy", "goldfish", "rabbit", "tortoise", "horse", "hamster"),
    "adjective": (
        "round", "soft", "very loud", "yellow", "sharp", "made of glass", "useful in the rain", "heavy", "cold",
    ),
    "material": ("paper", "string", "salt", "vinegar", "a spoon", "wood", "old newspapers", "a cardboard box", "sand"),
    "rhyme": ("light", "day", "tree", "house", "rain", "blue", "ring", "sand", "night", "bell"),
    "word": ("happy", "big", "fast", "quiet", "begin", "clever", "strange", "important", "look", "say", "make", "cold"),
    "food": ("rice", "eggs", "potatoes", "lentils", "apples", "tomatoes", "cheese", "mushrooms", "carrots", "beans"),
    "form": (
        "", "Number the items.", "Use bullet points.", "Write one item per line.",
        "Add one short sentence to each item.",
        "Order them alphabetically.", "Give a reason for each.", "Answer with the list only.",
        "Put the most important item first.",
    ),
    "style": (
        "", "Number the steps.", "Begin each step with a verb.", "Write one step per line.",
        "Explain each step briefly.",
        "Name what is needed first.", "Say how long each step takes.", "Add a warning where one is needed.",
    ),
    "process": (
        "make pancakes", "plant a tree", "clean a fish tank", "paint a wall", "publish a newsletter", "set up a tent",
        "prepare a picnic", "wash a car", "make a paper plane", "build a bird house", "write an essay", "bake bread",
        "make vegetable soup", "repair a chair", "learn a song", "organise a flea market",
        "plan a journey to {habitat}",
        "prepare a lesson about {subject}", "study {subject} for a test", "design a poster about {subject}",
        "train a {pet}", "cook a meal with {food}", "prepare for {outing}", "tidy {workplace}",
    ),
    "table": (
        "country, capital and language", "animal, habitat and food", "planet, size and distance from the sun",
        "fruit, colour and season", "job, place and tool", "sport, team size and equipment",
        "month, season and weather",
        "metal, colour and use", "instrument, family and sound", "vegetable, cooking time and dish",
    ),
    "range": (
        "one to twelve", "five to fifteen", "twenty down to ten", "two to twenty in steps of two",
        "ten to one hundred in steps of ten", "three to thirty in steps of three", "one to twenty",
    ),
    "units": ("in words", "in digits", "in words, one per line", "in digits, separated by commas", "one per line"),
    "base": ("two", "three", "four", "five", "six", "seven", "eight", "nine", "eleven", "twelve"),
    "order": (
        "days of the week", "months of the year", "seasons", "planets", "letters of the alphabet",
        "colours of the rainbow",
    ),
    "way": (
        "in order", "in reverse order", "in order, one per line", "with one sentence about each", "as a numbered list",
    ),
}  # fmt: skip

TEMPLATES = (
    *("List {count} {things}. {form}",) * 4,
    *("Give me {count} {things}. {form}",) * 3,
    *("Can you name {count} {things}? {form}",) * 2,
    "Help me to find {count} {things}. {form}",
    *("What are the steps to {process}? Give {count} steps. {style}",) * 2,
    "Write a checklist with {count} points: how to {process}.",
    "Make a table with {count} rows and the columns {table}.",
    "Write a shopping list to {process}.",
    "Count from {range} {units}.",
    "Write the multiplication table of {base}, up to {count} rows.",
    "Write the {order} {way}.",
    "Give {count} advantages and {count} disadvantages of {subject} as a topic at school.",
    "Write a quiz with {count} questions and answers about {subject}.",
    "Make a timetable for a day about {subject} in {workplace}. {form}",
    "Compare {subject} and {subject} in a list of {count} points.",
)


def write(pen: Pen) -> str:
    """One prompt whose answer is a list."""
    return pen.fill(pen.pick(TEMPLATES), WORDS).strip()
