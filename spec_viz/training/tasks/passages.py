"""Paragraphs made up from facts, to be summarised or asked about.

A passage keeps to one set of facts: what it says of a name, a year or a number it says once, and what is asked has its
answer in it. People, places and firms are invented.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spec_viz.training.pen import Pen, Words, say

FIRST = (
    "Anna", "Boris", "Clara", "David", "Elena", "Felix", "Grace", "Henry", "Irene", "Jonas", "Karin", "Leo", "Maria",
    "Nadia", "Oscar", "Paula", "Rosa", "Simon", "Teresa", "Victor", "Wendy", "Yusuf", "Linh", "Minh", "Amara", "Kofi",
    "Priya", "Arjun", "Mei", "Hana", "Diego", "Lucia", "Omar", "Leila",
)  # fmt: skip
LAST = (
    "Abbott", "Brandt", "Castle", "Dorn", "Ellis", "Fontana", "Greene", "Hale", "Ibarra", "Jensen", "Keller", "Lund",
    "Marsh", "Novak", "Okafor", "Pereira", "Quinn", "Rossi", "Sato", "Tran", "Underwood", "Varga", "Weiss", "Young",
    "Zeman", "Nguyen", "Mensah", "Haddad", "Iyer", "Costa",
)  # fmt: skip
TOWNS = (
    "Ashford Mill", "Birchwater", "Calder Bay", "Dunmore", "Elmstead", "Ferrow", "Greyport", "Hollin", "Ivesby",
    "Kettering Cross", "Larkfield", "Millbrook", "Norwick", "Oakham Hill", "Penrose", "Quarry Lane", "Rosthwaite",
    "Silverden", "Thornley", "Upperfield", "Valmere", "Westhaven", "Yarrow", "Stonebridge", "Redcliff", "Marlow End",
)  # fmt: skip
RIVERS = ("Arle", "Brenn", "Corve", "Dell", "Esker", "Fenn", "Garrow", "Hild", "Isen", "Lorne", "Mire", "Tolva")
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SMALL = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
TENS = tuple(str(number) for number in range(13, 100, 2))
HUNDREDS = tuple(str(number) for number in range(150, 990, 20))
YEARS = tuple(str(year) for year in range(1871, 1996, 4))
LATE_YEARS = tuple(str(year) for year in range(1998, 2025))

COMMON: Words = {
    "first": FIRST, "last": LAST, "other_first": FIRST, "other_last": LAST, "town": TOWNS, "far": TOWNS,
    "river": RIVERS, "month": MONTHS, "later": MONTHS, "day": DAYS, "few": SMALL, "some": SMALL, "many": TENS,
    "more": TENS, "lots": HUNDREDS, "heap": HUNDREDS, "year": YEARS, "recent": LATE_YEARS,
}  # fmt: skip
# Two facts that must not be the same word, or the passage would say nothing.
APART = (("first", "other_first"), ("last", "other_last"), ("town", "far"), ("month", "later"), ("few", "some"),
         ("many", "more"), ("lots", "heap"))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of passage: its own words, its sentences in order, each in one or more wordings, and its questions."""

    words: Words
    sentences: tuple[tuple[str, ...], ...]
    questions: tuple[str, ...]


KINDS = (
    Kind(
        {
            "building": (
                "library", "swimming pool", "theatre", "sports hall", "school", "covered market", "museum", "station",
            ),
            "stuff": ("brick", "timber", "steel and glass", "pale stone", "concrete"),
            "extra": (
                "a roof garden", "a small cafe", "a room for music lessons", "a workshop for repairs", "solar panels",
            ),
        },
        (
            ("The new {building} in {town} opened on {day} after {few} years of work.",
             "After {few} years of work, the new {building} in {town} opened its doors on {day}."),
            ("It was designed by {first} {last}, who grew up in the town, and is built of {stuff}.",
             "The architect, {first} {last}, chose {stuff} because it suits the old houses nearby."),
            ("The old {building}, built in {year}, was closed when engineers found cracks in its walls.",
             "It replaces a {building} from {year} that had become too small and too cold in winter."),
            ("The project cost {heap} thousand crowns, a little more than had been planned.",
             "In the end the town paid {heap} thousand crowns, and a local fund gave the rest."),
            ("Visitors will also find {extra}, which many people had asked for.",),
            ("On the first day {lots} people came, and the mayor, {other_first} {other_last}, cut the ribbon.",
             "The mayor, {other_first} {other_last}, welcomed {lots} guests on the first day."),
            ("The {building} is open from {day} to Sunday and costs nothing for children under {some}.",
             "A second part is planned, but the council will not decide on it before {month}."),
        ),
        (
            "Who designed the new {building}?", "What is the new {building} built of?", "How long did the work take?",
            "When was the old {building} built?", "How much did the project cost?", "Who is the mayor of {town}?",
            "How many people came on the first day?", "What else will visitors find in the {building}?",
        ),
    ),
    Kind(
        {
            "animal": ("herons", "otters", "bats", "wild bees", "hedgehogs", "beavers", "owls", "frogs", "swallows"),
            "area": ("wetland", "forest", "old quarry", "river bank", "park", "valley", "orchard"),
            "cause": ("warmer winters", "fewer pesticides", "cleaner water", "a ban on motor boats", "new hedges"),
            "tool": ("small cameras", "radio tags", "sound recorders", "a drone", "paper forms"),
        },
        (
            ("Researchers from {town} have counted the {animal} in the {area} near the river {river} since {recent}.",
             "Since {recent} researchers have counted the {animal} that live in a {area} by the river {river}."),
            ("In the first year they found only {many}; this year there were {lots}.",
             "The number has grown from {many} in the first year to {lots} today."),
            ("The team, led by {first} {last}, used {tool} and walked the same path every {day}.",
             "{first} {last}, who leads the team, says that {tool} made the work much easier."),
            ("They believe that {cause} helped the most.", "The most likely reason, they say, is {cause}."),
            ("Farmers in the area were worried at first, but now {few} of them take part in the project.",
             "Not everybody is happy: {few} farmers have asked for money because of damage in their fields."),
            ("The next count will take place in {month}, and volunteers from {far} are welcome.",
             "The group will publish its full report in {month} and hopes to extend the study to {far}."),
        ),
        (
            "Which animals do the researchers count?", "Who leads the team?", "What did the team use for the count?",
            "How many {animal} were there in the first year?", "How many {animal} are there today?",
            "What helped the {animal} the most?", "Where do the {animal} live?", "What happens in {month}?",
        ),
    ),
    Kind(
        {
            "craft": (
                "painter", "composer", "engineer", "botanist", "teacher", "photographer", "poet", "doctor",
                "astronomer",
            ),
            "work": ("a series of maps", "a book about rivers", "a new kind of lamp", "a school for evening classes",
                     "a collection of songs", "a catalogue of mosses", "a bridge without a single nail"),
            "parent": (
                "a fisherman", "a tailor", "a miller", "a railway clerk", "a shoemaker", "a bookseller", "a nurse",
            ),
            "trait": ("patience", "a sharp memory", "a sense of humour", "very neat handwriting", "a loud laugh"),
        },
        (
            ("{first} {last} was born in {town} in {year}, the child of {parent}.",
             "Born in {town} in {year}, {first} {last} was the youngest of {few} children of {parent}."),
            ("A teacher, {other_first} {other_last}, noticed the child's talent and lent the family books.",
             "The family was poor, but a neighbour, {other_first} {other_last}, paid for the first lessons."),
            ("As soon as school was over, the young {craft} moved to {far} and worked at night to pay the rent.",
             "After {some} years in {far}, the young {craft} had become known for {trait}."),
            ("The best known work is {work}, which took {few} winters to finish.",
             "Today the {craft} is remembered above all for {work}."),
            ("At first only {many} people took notice, and a newspaper called it a waste of time.",
             "Critics did not like it, and in the first year it found no more than {many} admirers."),
            ("A small museum in {town} now shows letters, tools and a chair that belonged to the family.",
             "Every {month} the town of {town} remembers its {craft} with a walk along the river {river}."),
        ),
        (
            "Where was {first} {last} born?", "In which year was {first} {last} born?",
            "What did the parent do for a living?",
            "Who noticed or supported the child?", "What is {first} {last} best known for?",
            "How many people took notice at first?", "Where did {first} {last} move?", "What happens in {town} today?",
        ),
    ),
    Kind(
        {
            "product": ("bicycles", "wooden toys", "honey", "rain jackets", "ceramic cups", "school furniture", "lamps",
                        "hiking boots", "paper", "violins"),
            "problem": ("the price of energy", "a shortage of drivers", "a broken machine", "a fire in the store room",
                        "late deliveries"),
            "idea": ("repair old products for free", "sell directly to schools", "work four days a week",
                     "use only local materials", "open a shop at the station"),
        },
        (
            ("The company {last} and Daughters has made {product} in {town} since {year}.",
             "{last} and Daughters, a company in {town}, makes {product}; it was founded in {year}."),
            ("It began with {few} workers in a shed and has {lots} today.",
             "Of the {few} people who began in a shed, one still visits the workshop, where {lots} people now work."),
            ("Last year the company sold {heap} thousand {product}, most of them abroad.",
             "In {recent} it sold {heap} thousand {product}, more than in any year before."),
            ("This spring, however, {problem} caused trouble, and orders fell by {many} percent.",
             "Then came {problem}: within {some} months orders fell by {many} percent."),
            ("The new director, {first} {last}, wants to {idea}.",
             "{first} {last}, who became director in {month}, has a plan: the company will {idea}."),
            ("Workers welcomed the plan, but the bank asked for more time.",
             "{other_first} {other_last}, who speaks for the workers, called the plan brave and a little risky."),
        ),
        (
            "What does the company make?", "When was the company founded?", "How many people work there today?",
            "What caused trouble this year?", "By how much did orders fall?", "Who is the director?",
            "What does the director want to do?", "How many {product} did the company sell?",
        ),
    ),
    Kind(
        {
            "team": ("Rovers", "Falcons", "United", "Tigers", "Comets", "Harriers"),
            "sport": ("football", "handball", "hockey", "volleyball", "basketball"),
            "weather": (
                "in heavy rain", "on a cold evening", "in bright sunshine", "in strong wind", "after a snowfall",
            ),
            "trouble": (
                "a twisted ankle", "a red card", "a late bus", "a broken floodlight", "a dispute over the ball",
            ),
        },
        (
            ("The {town} {team} won the {sport} match against {far} on {day} {weather}.",
             "On {day}, {weather}, the {town} {team} beat the {sport} team of {far}."),
            ("{first} {last} scored {few} times, the last time only seconds before the end.",
             "The best player was {first} {last}, who scored {few} times and was later carried off the field by fans."),
            ("At half time {far} was still ahead, and {trouble} had stopped the game for {many} minutes.",
             "The game had to be stopped for {many} minutes because of {trouble}."),
            ("Coach {other_first} {other_last} then changed the whole defence.",
             "Coach {other_first} {other_last} said that the team had trained for exactly this."),
            ("{lots} people watched, the largest crowd since {recent}.",
             "The crowd of {lots} was the largest since {recent}."),
            ("The final takes place in {month}; tickets cost {some} crowns and go on sale next week.",
             "With this result the {team} reach the final in {month}, for the first time in {some} years."),
        ),
        (
            "Who won the match?", "Who scored for the {team}?", "Why was the game stopped?", "Who is the coach?",
            "How many people watched the match?", "When is the final?", "How was the weather?",
            "How long was the game stopped?",
        ),
    ),
    Kind(
        {
            "ship": ("Northern Star", "Patience", "Blue Heron", "Aurora", "Good Hope", "Marigold"),
            "goal": ("an uncharted island", "the source of a warm current", "a lost weather station",
                     "the edge of the summer ice", "a reef described by fishermen"),
            "mishap": ("the rudder broke", "fog came down for a week", "the cook fell ill", "the fresh water ran low",
                       "a wave took the small boat"),
            "find": ("a cliff full of nesting birds", "a hut with a stove that still worked", "fossils of sea lilies",
                     "a bay that no map showed", "a bottle with a letter"),
        },
        (
            ("In {month} {year} the ship {ship} left {town} with {many} people on board to look for {goal}.",
             "The expedition to find {goal} began in {month} {year}, when the {ship} left the harbour of {town}."),
            ("Captain {first} {last} had sailed these waters {few} times before.",
             "It was the {ship}'s first long voyage under Captain {first} {last}."),
            ("In the third week {mishap}, and some of the crew wanted to turn back.",
             "Everything went well until {mishap}."),
            ("The naturalist {other_first} {other_last} wrote in a diary that nobody slept for {some} nights.",
             "A diary by the naturalist {other_first} {other_last} tells how the crew sang to keep awake."),
            ("At last they reached land and discovered {find}.",
             "They never found what they were looking for, but they discovered {find}."),
            ("When the {ship} returned in {later}, {lots} people stood on the quay.",
             "They came home in {later}, thin but healthy, and were greeted by {lots} people."),
        ),
        (
            "What was the name of the ship?", "Who was the captain?", "What was the expedition looking for?",
            "What went wrong on the voyage?", "Who wrote a diary?", "What did the crew discover?",
            "When did the ship return?", "From which town did the ship leave?",
        ),
    ),
    Kind(
        {
            "course": ("bread baking", "first aid", "bicycle repair", "Spanish", "drawing", "computer basics",
            "choir singing",
                       "sewing", "beekeeping"),
            "room": ("the old fire station", "room 12 of the school", "the church hall", "the back room of the library",
                     "the community kitchen"),
            "bring": ("an apron", "a notebook", "strong shoes", "a pair of scissors", "a mug", "a photograph"),
        },
        (
            ("From {month} the adult school of {town} offers a course in {course}.",
             "The adult school of {town} has a new course in {course}, which begins in {month}."),
            ("It takes place every {day} evening in {room} and lasts {few} weeks.",
             "The group meets in {room} every {day} evening for {few} weeks."),
            ("The teacher is {first} {last}, who has {some} years of experience.",
             "{first} {last}, who learned the subject in {far}, will teach the course."),
            ("There are {many} places, and the fee is {lots} crowns; students pay half.",
             "The fee of {lots} crowns includes all materials, and there are {many} places."),
            ("Please bring {bring}.", "Participants should bring {bring} to the first evening."),
            ("Anyone who wants to take part should write to {other_first} {other_last} before the end of {later}.",
             "Questions are answered by {other_first} {other_last} in the office, which is closed in {later}."),
        ),
        (
            "On which day does the course take place?", "Where does the course take place?", "Who teaches the course?",
            "How much does the course cost?", "How many places are there?", "What should participants bring?",
            "How long does the course last?", "Who answers questions about the course?",
        ),
    ),
    Kind(
        {
            "storm": ("A storm", "Heavy rain", "An early snowfall", "A flood", "A power cut", "Thick ice"),
            "damage": ("cut off the road to the hospital", "damaged the roof of the school", "stopped all trains",
                       "left the harbour without light", "covered the market square with mud"),
            "help": ("soup and blankets", "sand bags", "a spare generator", "rowing boats", "free rides to work"),
        },
        (
            ("{storm} hit {town} on {day} night and {damage}.",
             "{storm} surprised the people of {town} on {day} night and {damage}."),
            ("About {lots} homes had no electricity for {few} hours.",
             "For {few} hours about {lots} homes were without electricity."),
            ("Nobody was hurt, but {many} people spent the night in the town hall.",
             "{many} people were taken to the town hall, and nobody was hurt."),
            ("Neighbours from {far} brought {help}.", "Help came from {far}: neighbours arrived with {help}."),
            ("\"I have not seen anything like it since {year},\" said {first} {last}, who is eighty-nine.",
             "{first} {last}, the head of the fire service, called it the worst night since {recent}."),
            ("Repairs will cost about {heap} thousand crowns and should be finished by {month}.",
             "The council expects the repairs to be finished by {month}; they will cost {heap} thousand crowns."),
        ),
        (
            "What happened in {town}?", "How many homes had no electricity?",
            "How long were the homes without electricity?",
            "Where did people spend the night?", "Who brought help?", "What will the repairs cost?",
            "When should the repairs be finished?", "Was anybody hurt?",
        ),
    ),
    Kind(
        {
            "plant": ("tomatoes", "pumpkins", "beans", "strawberries", "potatoes", "sunflowers", "herbs"),
            "light": ("in full sun", "in half shade", "near a window", "under a net", "in a cold frame"),
            "feed": ("compost", "ash", "seaweed", "nothing at all", "liquid fertiliser"),
            "sort": ("an old local variety", "a new hybrid", "seeds from a shop", "seeds kept from last year"),
        },
        (
            ("A class at the school in {town} tested how {plant} grow best.",
             "How do {plant} grow best? A class at the school in {town} wanted to know."),
            ("In {month} the pupils planted {many} pots {light} and gave half of them {feed}.",
             "The pupils filled {many} pots in {month}, put them {light} and fed half of them with {feed}."),
            ("All of them used {sort}.", "So that the test was fair, everybody used {sort}."),
            ("After {few} weeks one group was {more} centimetres high, the other {some} centimetres higher.",
             "After {few} weeks one group measured {more} centimetres, and the other was {some} centimetres higher."),
            ("Their teacher, {first} {last}, was surprised, because the result of {recent} had been the opposite.",
             "{first} {last}, their teacher, asked them to repeat the test before believing the result."),
            ("In {later} the class will sell the harvest and give the money to the animal shelter in {far}.",
             "The class will show its results to parents in {later}."),
        ),
        (
            "Which plants did the class test?", "How many pots did the pupils plant?", "Who is the teacher?",
            "How long did the test last?", "What did half of the plants get?", "Which seeds did the class use?",
            "What will the class do in {later}?", "Where is the school?",
        ),
    ),
)  # fmt: skip

SUMMARISE = (
    "Summarise the following text in one sentence.", "Summarize this text in two sentences.",
    "Write a short summary of this report.", "What is this text about? Answer in three sentences.",
    "List the {few} most important facts of the following text.",
    "Give this text a title and a summary in one sentence.",
    "Rewrite the following text in simpler words.", "Shorten the following text to about forty words.",
    "Turn the following text into a list of bullet points.", "Write a headline for this text and explain your choice.",
    "Retell the following text for a child.", "Which names, dates and numbers does this text mention? List them.",
    "Write a short radio report based on the following text.",
    "Correct nothing, only shorten this text to half its length.",
)  # fmt: skip
ASK = (
    "Answer the question with the help of the text.", "Read the passage and answer the question.",
    "Use only the text below to answer.", "Answer from the text, in a full sentence.",
    "Find the answer in the text and quote the sentence that contains it.",
)  # fmt: skip


def tell(pen: Pen, kind: Kind) -> tuple[str, dict[str, str]]:
    """A passage of this kind and the facts it keeps to."""
    facts = pen.facts({**COMMON, **kind.words})
    for one, two in APART:
        while facts[one] == facts[two]:
            facts[two] = pen.pick(COMMON[two])
    sentences = [say(pen.pick(wordings), facts) for wordings in kind.sentences]
    return " ".join(sentences), facts


def summarise(pen: Pen) -> str:
    """One passage to be made shorter, or told in another way."""
    passage, facts = tell(pen, pen.pick(KINDS))
    return f"{say(pen.pick(SUMMARISE), facts)}\n\n{passage}"


def ask(pen: Pen) -> str:
    """One passage and one to three questions about it."""
    kind = pen.pick(KINDS)
    passage, facts = tell(pen, kind)
    questions = _questions(pen, kind, facts)
    if pen.chance(0.5):
        return f"{pen.pick(ASK)}\n\nText: {passage}\n\n{questions}"
    return f"{passage}\n\n{questions}\n{pen.pick(ASK)}"


def _questions(pen: Pen, kind: Kind, facts: Mapping[str, str]) -> str:
    chosen = [say(question, facts) for question in pen.some(kind.questions, pen.pick((1, 1, 1, 2, 3)))]
    if len(chosen) == 1:
        return f"Question: {chosen[0]}"
    return "Questions:\n" + "\n".join(f"{place}. {question}" for place, question in enumerate(chosen, 1))
