"""What people ask, by topic and intent: phrases to learn from, and others that the nets are judged on."""

import random
from dataclasses import dataclass

TRAINED: dict[str, dict[str, tuple[str, ...]]] = {
    "billing": {
        "refund": (
            "I want my money back for {thing}", "please refund the {amount} for {thing}", "how do I get a refund",
            "I returned {thing}, when do you pay me back", "can you give me back what I paid for {thing}",
            "I am still waiting for my refund of {amount}", "cancel {thing} and return my money",
        ),
        "invoice": (
            "send me the invoice for {thing}", "where can I download my bill", "I need a receipt for {thing} of {amount}",
            "please put our company's name on the invoice", "I did not get a bill for {thing}",
            "can I have a copy of last month's invoice", "the address on my receipt is wrong",
        ),
        "payment": (
            "my card was declined when I paid for {thing}", "can I pay for {thing} by bank transfer",
            "how do I change my credit card", "you charged me {amount} twice", "why was {amount} taken from my account",
            "which ways of paying do you accept", "the payment of {amount} did not go through",
        ),
    },
    "technical": {
        "login": (
            "I forgot my password", "I cannot log in to my account", "how do I reset my password",
            "the login page says wrong password", "my account is locked", "the code for signing in never arrives",
            "how can I change the password of my account",
        ),
        "crash": (
            "the app crashes when I open {page}", "the program stops with an error on {page}", "the screen freezes on {page}",
            "I see an error message after the update", "the application closes by itself", "{page} shows a blank screen",
            "it hangs every time I click on {page}",
        ),
        "network": (
            "the wifi keeps dropping", "I have no internet connection", "the router does not connect",
            "downloads are very slow today", "the signal in {room} is weak", "the connection breaks every few minutes",
            "how do I connect my phone to the network",
        ),
    },
    "travel": {
        "booking": (
            "book a flight to {city} {day}", "I want to reserve a room in {city}", "find me a hotel in {city} {day}",
            "two seats on the train to {city} please", "I would like to book a trip to {city}",
            "reserve a rental car in {city} {day}", "are there tickets to {city} {day}",
        ),
        "change": (
            "can I move my flight to {city}", "I need to change the date of my trip", "change my hotel in {city} to another day",
            "I want to travel to {city} {day} instead", "is it possible to rebook my train to {city}",
            "move my reservation to another date", "I have to postpone my journey to {city}",
        ),
        "luggage": (
            "my suitcase did not arrive in {city}", "how many bags can I take on the plane", "what may a suitcase weigh",
            "I lost my luggage at the airport of {city}", "may I take a bicycle on the train", "is hand luggage included",
            "how much does an extra bag to {city} cost",
        ),
    },
    "smalltalk": {
        "greeting": (
            "hello there", "good morning", "hi, how are you", "good evening to you", "hey, nice to meet you",
            "greetings from {city}", "how is it going",
        ),
        "thanks": (
            "thank you very much", "thanks, that was great", "you have been very helpful", "many thanks for everything",
            "that was very kind of you", "I am so grateful", "cheers, you are the best",
        ),
        "joke": (
            "tell me a joke", "do you know something funny", "make me laugh", "I want to hear a funny story about {animal}",
            "say something witty", "do you know a joke about {animal}", "cheer me up with a joke",
        ),
    },
}  # fmt: skip

HELD_OUT: dict[str, dict[str, tuple[str, ...]]] = {
    "billing": {
        "refund": (
            "when will I be refunded for {thing}", "I'd like to get back the {amount} I spent", "pay me back please",
        ),
        "invoice": (
            "could you mail me the receipt for {thing}", "my invoice has a mistake in it", "I need last year's bills",
        ),
        "payment": (
            "do you take credit cards", "my bank refused the payment for {thing}", "I was charged {amount} by mistake",
        ),
    },
    "technical": {
        "login": (
            "my password is not accepted", "help, I am locked out of my account", "signing in does not work any more",
        ),
        "crash": (
            "an error appears when I go to {page}", "the app keeps crashing since the update", "the program is frozen",
        ),
        "network": (
            "my internet is down", "the wireless connection in {room} is bad", "why is my network so slow",
        ),
    },
    "travel": {
        "booking": (
            "I need a flight to {city} {day}", "get me a ticket for the train to {city}", "reserve a hotel room in {city}",
        ),
        "change": (
            "please rebook my flight to {city}", "I must change my ticket to {city}", "can we postpone the trip to {city}",
        ),
        "luggage": (
            "my bags got lost in {city}", "what is the limit for hand luggage", "can I bring a second suitcase",
        ),
    },
    "smalltalk": {
        "greeting": (
            "hi there, good day", "hello, how is your day", "good afternoon",
        ),
        "thanks": (
            "thanks a lot for your help", "I thank you", "that was so helpful, thank you",
        ),
        "joke": (
            "I need a good laugh", "have you got a funny joke", "tell me a funny story",
        ),
    },
}  # fmt: skip

TOPICS = tuple(TRAINED)
INTENTS = {topic: tuple(intents) for topic, intents in TRAINED.items()}

FILLINGS = {
    "thing": ("the blue jacket", "my subscription", "the broken lamp", "the tickets", "order 8812", "the headphones"),
    "amount": ("20 euros", "$49", "12.50", "300 dollars", "99 pounds"),
    "page": ("the settings", "my profile", "the start page", "the search", "the shopping cart", "the calendar"),
    "room": ("the kitchen", "my office", "the bedroom", "the cellar"),
    "city": ("Rome", "Lisbon", "Oslo", "Vienna", "Prague", "Athens", "Dublin", "Warsaw"),
    "day": ("on Friday", "tomorrow", "next week", "on 3 May", "this weekend", "in June"),
    "animal": ("cats", "dogs", "penguins", "elephants"),
}
BEFORE = ("", "", "", "hello, ", "sorry, but ", "a question: ", "well, ")
AFTER = ("", "", "", "?", "!", ".", " ...", " please")


@dataclass(frozen=True)
class Question:
    """A text with its topic and what is wanted there."""

    text: str
    topic: str
    intent: str


def draw_questions(num_of_each: int, seed: int, *, is_held_out: bool) -> list[Question]:
    """Draws questions of every phrase, with its gaps filled, in random order."""
    rng = random.Random(seed)
    questions = [
        Question(_fill(phrase, rng), topic, intent)
        for topic, intents in (HELD_OUT if is_held_out else TRAINED).items()
        for intent, phrases in intents.items()
        for phrase in phrases
        for _ in range(num_of_each)
    ]
    rng.shuffle(questions)
    return questions


def _fill(phrase: str, rng: random.Random) -> str:
    filled = phrase.format(**{gap: rng.choice(words) for gap, words in FILLINGS.items()})
    return f"{rng.choice(BEFORE)}{filled}{rng.choice(AFTER)}"
