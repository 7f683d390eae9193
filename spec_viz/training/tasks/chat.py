"""Small talk, advice, messages to write, short stories: what people type into a chat."""

from __future__ import annotations

from spec_viz.training.pen import Pen, Words

WORDS: Words = {
    "relation": (
        "sister", "brother", "neighbour", "best friend", "cousin", "teacher", "flatmate", "grandmother", "uncle",
        "colleague", "manager", "daughter", "son", "old school friend", "piano teacher", "football coach",
    ),
    "feeling": (
        "nervous", "very happy", "a little sad", "tired", "excited", "bored", "proud", "worried", "confused",
        "disappointed", "grateful", "restless", "lonely", "relieved", "curious",
    ),
    "reason": (
        "I start a new job on {day}", "my exam is next {day}", "I have to speak in front of forty people",
        "my cat has been missing since {day}", "I finally finished my first novel", "we are moving to another city",
        "I failed my driving test again", "my friend cancelled our trip", "I learned to swim this summer",
        "my garden looks wonderful this year", "I cannot sleep before midnight", "my team won the final on {day}",
        "I broke my favourite cup", "nobody came to my party", "I get a puppy on {day}",
        "my bicycle was repaired for free", "I have nothing to do this weekend", "my train is two hours late",
        "I will meet my new neighbours on {day}", "I lost my wallet on the bus",
    ),
    "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "ask": (
        "What would you say to me?", "Do you have any advice?", "What should I do first?", "How can I calm down?",
        "Can you help me to see the good side?", "Please answer in a few kind words.", "What would a good friend say?",
        "Tell me one thing that could help.",
    ),
    "hobby": (
        "gardening", "chess", "painting", "hiking", "baking bread", "photography", "playing the guitar", "knitting",
        "bird watching", "running", "woodwork", "cycling", "pottery", "singing in a choir", "learning languages",
        "astronomy", "board games", "fishing", "writing poems", "rock climbing", "juggling", "table tennis",
    ),
    "person": (
        "a student", "a busy parent", "my grandfather", "a child of eight", "a beginner", "two friends",
        "a shy colleague", "someone who has just retired", "a teenager", "a person with little money",
        "someone who works at night", "a family of five",
    ),
    "purpose": (
        "thank them for their help", "invite them to dinner on {day}", "say sorry for being late",
        "ask if they can water my plants", "congratulate them on a new job", "wish them a happy birthday",
        "tell them that I cannot come on {day}", "ask them to return my book", "wish them luck for the exam",
        "ask for a day off on {day}", "tell them about my new flat", "suggest a walk in the park on {day}",
        "cheer them up after a bad week", "ask how the holiday was",
    ),
    "tone": (
        "friendly", "short", "polite", "funny", "warm", "formal", "cheerful", "simple", "careful", "honest",
    ),
    "mood": ("friendly", "funny", "warm", "cheerful", "simple", "honest", "thoughtful", "dramatic"),
    "place": (
        "a small village by the sea", "a quiet library", "a mountain hut", "a busy railway station", "an old theatre",
        "a bakery", "a lighthouse", "a school in the desert", "a cave full of crystals", "a city of bridges",
        "a garden behind a wall", "a night market", "a village without cars", "a workshop full of clocks",
        "a hotel in winter", "a cottage in the hills",
    ),
    "hero": (
        "a baker", "a young sailor", "a retired detective", "a lost dog", "a clock maker", "a robot", "a gardener",
        "a girl who collects maps", "a shy musician", "a bus driver", "a fox", "two sisters", "a postman",
        "an honest thief", "a very old tortoise", "a painter", "a night nurse", "a boy with a kite",
    ),
    "event": (
        "finds a key that fits no door", "receives a letter from the future", "hears music from the cellar",
        "loses the way in the fog", "makes a friend in a storm", "must win a race", "discovers a hidden room",
        "wakes up in the wrong town", "has to keep a secret for one day", "learns to say no",
        "mends something that everybody thought was broken", "gives away the last piece of bread",
        "finds out why the river is silent", "waits for the first snow", "meets a stranger who knows too much",
    ),
    "thing": (
        "book", "film", "meal", "song", "walk", "game", "present", "weekend trip", "evening class", "podcast topic",
        "morning routine", "rainy day activity",
    ),
    "role": (
        "tour guide", "science teacher", "chef", "librarian", "sports coach", "travel agent", "gardener", "historian",
        "shop assistant", "doctor who explains things simply", "museum guard", "weather reporter",
    ),
    "question": (
        "What do you enjoy about {hobby}?", "How would you spend a free {day}?", "Is it better to rise early or late?",
        "What makes a good neighbour?", "How do I start with {hobby}?", "What should I pack for {place}?",
        "Why do people like {hobby}?", "How can I find time for {hobby}?", "What is the best thing about {place}?",
        "Which is harder, {hobby} or {hobby}?",
    ),
}  # fmt: skip

TEMPLATES = (
    "I am {feeling} because {reason}. {ask}",
    "Hello! I feel {feeling} today: {reason}. {ask}",
    "My {relation} is {feeling}. How can I help? We both like {hobby}.",
    "Write a {tone} message to my {relation} to {purpose}.",
    "Please write a {tone} note to my {relation}. I want to {purpose}.",
    "Can you suggest a {thing} for {person} who likes {hobby}?",
    "I would like to try {hobby}, but I have only {minutes} minutes a day. How should I begin?",
    "Tell me a short story about {hero} who {event}.",
    "Write a story set in {place}. In it, {hero} {event}.",
    "Write a short poem about {hobby} in {place}.",
    "Write a dialogue between {hero} and {hero} in {place}.",
    'You are a {role}. A visitor asks you: "{question}" Give a {tone} answer.',
    "{question} Answer as a {role} would.",
    "Pretend that you are {hero} in {place}. Describe your day in a {mood} way.",
    "My {relation} gave up {hobby} last year. Write a {tone} text that invites them to start again.",
    "Plan a {day} for {person} who loves {hobby}.",
    "How do I explain to my {relation} that I have no time for {hobby} on {day}?",
)

MINUTES = ("ten", "fifteen", "twenty", "thirty", "forty", "sixty")


def write(pen: Pen) -> str:
    """One message to a chat assistant."""
    return pen.fill(pen.pick(TEMPLATES), {**WORDS, "minutes": MINUTES})
