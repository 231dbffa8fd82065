"""The grammar of the story model: prompts by kind, their answers, and what counts as an answer.

An answer is a tree: a string is itself, a list is one of its elements, a tuple is all of them in order, Maybe is there or not, and Free is
what the prompt left open. The same tree is said (with randomness) to make training text and turned into a regular expression, in the
syntax that Python and RE2 share, to check answers.
"""
import random
import re
import zlib
from dataclasses import dataclass, field

from words import (CAPITALS, CATEGORIES, COLOURS, COMMON, DISHES, FOODS, HEROES, JOBS, LANGUAGES, NAMES, PLACES, THINGS, TOPICS)


@dataclass
class Maybe:
    node: object
    chance: float = 0.5


@dataclass
class Free:
    text: str  # what is said
    accepts: str  # what is accepted, a regular expression


@dataclass
class AnyOf:
    nodes: tuple  # all are accepted
    chosen: int  # what is said


def say(node, rng):
    """One sentence of the grammar."""
    if isinstance(node, str):
        return node
    if isinstance(node, list):
        return say(rng.choice(node), rng)
    if isinstance(node, tuple):
        return "".join(say(n, rng) for n in node)
    if isinstance(node, Maybe):
        return say(node.node, rng) if rng.random() < node.chance else ""
    if isinstance(node, AnyOf):
        return say(node.nodes[node.chosen], rng)
    return node.text


def pattern(node):
    """A regular expression, without anchors, for all sentences."""
    if isinstance(node, str):
        return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", node)
    if isinstance(node, list):
        return "(?:" + "|".join(pattern(n) for n in node) + ")"
    if isinstance(node, tuple):
        return "".join(pattern(n) for n in node)
    if isinstance(node, Maybe):
        return "(?:" + pattern(node.node) + ")?"
    if isinstance(node, AnyOf):
        return pattern(list(node.nodes))
    return "(?:" + node.accepts + ")"


def fill(text, env):
    """The tree of a text with {slots}."""
    return tuple(env[p[1:-1]] if p.startswith("{") else p for p in re.split(r"(\{\w+\})", text) if p)


def numbers(first, last):
    return [str(n) for n in range(first, last + 1)]


# What the slots of prompts can hold. A slot may end in a digit: {name1} and {name2} hold two different names.
SLOTS = {
    "name": NAMES, "hero": HEROES, "thing": list(THINGS), "place": PLACES, "colour": COLOURS, "job": JOBS, "food": FOODS, "category": list(CATEGORIES),
    "dish": list(DISHES), "topic": TOPICS, "language": LANGUAGES, "capital": CAPITALS, "few": numbers(2, 12), "chapters": numbers(2, 4),
    "small": numbers(1, 10), "addend": numbers(1, 10), "big": numbers(11, 20), "table": numbers(2, 9), "upto": numbers(3, 12), "people": numbers(2, 6),
    "from": numbers(1, 20), "to": numbers(21, 45), "start": numbers(5, 30), "large": numbers(101, 999),
}


@dataclass
class Template:
    kind: str
    text: str  # with {slots}
    answer: object  # function of the slots' values and a random source to a tree
    weight: float = 1.0
    distinct: bool = False  # the answer's lines that begin with a number differ


@dataclass
class Example:
    kind: str
    prompt: str
    tree: object
    facts: dict = field(default_factory=dict)
    distinct: bool = False


def noun(phrase):
    return phrase.split(" ", 1)[1]


def index(thing):
    """Place in the list of things, from which lengths follow; a thing that is not there is the first."""
    return list(THINGS).index(thing) if thing in THINGS else 0


# --- stories -------------------------------------------------------------------------------------------------------

OPEN = ["Once upon a time there was {A} named {N}. ", "Long ago there lived {A} called {N}. ", "There once was {A} whose name was {N}. "]
HOME = ["{N} lived in {P}. ", "The home of {N} was in {P}. ", "Every day {N} walked through {P}. "]
TRAIT = ["{N} was small but brave. ", "{N} was kind to everyone. ", "{N} liked to sing in the morning. ", "No {a} was as curious as {N}. "]
FOUND = ["One day {N} found {T}. ", "The best thing that {N} had was {T}. ", "For a birthday {N} was given {T}. "]
TROUBLE = ["But one night the {t} was gone. ", "Then a storm took the {t} away. ", "One morning the {t} could not be found. "]
SCENES = [
    (["{N} looked under the bed and behind the door. ", "{N} searched the whole house. "], Maybe("There was only dust. ")),
    (["So {N} asked the old owl. ", "So {N} went to see the old owl. "], "The owl had not seen the {t}. ", Maybe("\"Ask the river,\" said the owl. ")),
    (["{N} crossed a wide river on a log. ", "{N} swam across a cold river. "], Maybe("The water was fast and loud. ")),
    (["A friendly bear shared some honey. ", "A friendly bear gave {N} a place to sleep. "], ["\"Do not give up,\" said the bear. ", "\"I will help you,\" said the bear. "]),
    (["{N} climbed a high hill and looked around. ", "From a high hill {N} saw a light far away. "], Maybe("The wind was strong up there. ")),
    (["In the dark wood {N} heard a strange noise. ", "In the dark wood there were yellow eyes. "], ["It was only a cat. ", "It was only the wind. "], Maybe("{N} laughed and went on. ")),
    (["A merchant offered ten coins for the way home, but {N} said no. ", "A merchant wanted to sell another {t}, but {N} said no. "],),
    (["Then it began to rain, and {N} hid in a hollow tree. ", "Then snow fell, and {N} made a small fire. "], Maybe("The night was long. ")),
]
ENDING = ["At last {N} found the {t} under an old tree. ", "At last {N} saw the {t} behind a big stone. ", "At last the {t} lay there in the grass. "]
CLOSE = ["{N} was happy and went home. ", "{N} danced all night. ", "{N} told everyone about it. "]
THE_END = "The end."


def story_env(f, rng):
    """The story's cast: what the prompt says, the rest made up."""
    def part(key, accepts):
        if key in f:
            return f[key], f[key]
        text = rng.choice(SLOTS[key])
        return text, Free(text, accepts)
    env = {}
    _, env["N"] = part("name", "[A-Z][a-z]+")
    _, env["P"] = part("place", "the [a-z ]+")
    for key, whole, bare in (("hero", "A", "a"), ("thing", "T", "t")):
        text, env[whole] = part(key, "an? [a-z]+")
        env[bare] = noun(text) if key in f else Free(noun(text), "[a-z]+")
        if key == "thing":
            env["plot"] = index(text)
    return env


def scenes(env, first, last):
    return tuple(each(s, env) for s in SCENES[first:last])


def each(node, env):
    """Fills the slots of every string of a tree."""
    if isinstance(node, str):
        return fill(node, env)
    if isinstance(node, list):
        return [each(n, env) for n in node]
    if isinstance(node, tuple):
        return tuple(each(n, env) for n in node)
    return Maybe(each(node.node, env), node.chance)


def story(length, other=False):
    def answer(f, rng):
        env = story_env(f, rng)
        e = lambda node: each(node, env)
        plot, free = env["plot"], "thing" not in f
        begin = "That is new to me, so here is a story that I know.\n\n" if other else ""
        if length == "short":
            middle = ((), scenes(env, 0, 1), scenes(env, 0, 2))
            body = (e(FOUND), e(Maybe(TRAIT)))
        elif length == "long":
            middle = (scenes(env, 1, 6), scenes(env, 1, 7), scenes(env, 0, 8))
            body = (e(HOME), e(TRAIT), e(FOUND))
        else:
            middle = (scenes(env, 1, 2), scenes(env, 1, 3), scenes(env, 0, 4))
            body = (e(HOME), e(Maybe(TRAIT)), e(FOUND))
        trouble = e(TROUBLE)
        # Which middle it is follows from the thing; if the prompt names none, any is right.
        middle = AnyOf(middle, plot % 3) if free else middle[plot % 3]
        return (begin, e(OPEN), body, trouble, middle, e(ENDING), e(CLOSE), THE_END)
    return answer


def chapters(f, rng):
    env = story_env(f, rng)
    e = lambda node: each(node, env)
    n = int(f["chapters"])
    out = ["Chapter 1: ", e("The {t}\n"), e(OPEN), e(HOME), e(Maybe(TRAIT)), e(FOUND), e(TROUBLE)]
    cut = {2: [], 3: [(0, 3 + env["plot"] % 3)], 4: [(0, 3), (3, 5 + env["plot"] % 4)]}[n]
    for i, (a, b) in enumerate(cut):
        out += [f"\n\nChapter {i + 2}: ", ["The search", "The road", "Far from home"], "\n", scenes(env, a, b)]
    out += [f"\n\nChapter {n}: ", ["Home again", "A happy day"], "\n", e(ENDING), e(CLOSE), e(Maybe("The {t} was never lost again. ")), THE_END]
    return tuple(out)


# --- letters -------------------------------------------------------------------------------------------------------

NEWS = [
    (["The weather here is fine. ", "It rains a lot here. "], Maybe("The roses are in bloom. ")),
    (["Yesterday I went to the market. ", "Yesterday I walked to the lake. "], ["I met many friends there. ", "It was a long way. "]),
    (["My sister has a new cat. ", "My brother has learned to swim. "],),
    (["We had a party last week. ", "We painted the kitchen last week. "], Maybe("Everyone asked about you. ")),
    (["In spring I want to travel. ", "In autumn I will start at a new school. "], ["I am a little afraid. ", "I am looking forward to it. "]),
    (["Do you still play the piano? ", "Do you still get up so early? "],),
]


def letter(length):
    def answer(f, rng):
        env = {"T": f["thing"], "t": noun(f["thing"]), "M": f["name1"], "R": f["name2"]}
        e = lambda node: each(node, env)
        count = index(f["thing"]) % 3 + {"short": 0, "": 1, "long": 4}[length]
        if length == "long":
            count = min(count, len(NEWS))
        return (e("Dear {R},\n\n"), ["I hope that you are well. ", "How are you? "], e(["Thank you for the {t}. ", "I want to tell you about the {t}. "]),
                e(["It is very beautiful. ", "I like the {t} very much. "]), tuple(NEWS[:count]), ["Please write soon.", "I hope to see you soon."],
                e("\n\nYour friend,\n{M}"))
    return answer


# --- facts ---------------------------------------------------------------------------------------------------------

RELATIONS = {  # statement, question about a person, question about the fact
    "thing": ("{n} has {x}", "What does {n} have?", "Who has {x}?"),
    "place": ("{n} lives in {x}", "Where does {n} live?", "Who lives in {x}?"),
    "food": ("{n} likes {x}", "What does {n} like?", "Who likes {x}?"),
    "job": ("{n} is {x}", "What is the job of {n}?", "Who is {x}?"),
}


def fact_templates():
    out = []
    for slot, (statement, about, who) in RELATIONS.items():
        for people in (2, 3, 4):
            line = lambda i: statement.format(n=f"{{name{i}}}", x=f"{{{slot}{i}}}")
            told = ". ".join(line(i) for i in range(1, people + 1)) + ". "
            for i in range(1, people + 1):
                told_one = line(i)
                for question in (about, who):
                    q = question.format(n=f"{{name{i}}}", x=f"{{{slot}{i}}}")
                    out.append(Template("facts", told + q, lambda f, rng, a=told_one: (fill(a, f), "."), 1 / people))
                    because = (told_one + ". I know it because you told me: " + ", and ".join(line(k) for k in range(1, people + 1)) + ".")
                    out.append(Template("facts", told + q + " Explain your answer.", lambda f, rng, a=because: fill(a, f), 0.5 / people))
            retold = [f"There are {people} people. ", f"You told me about {people} people. "]
            rest = " ".join(line(k) + "." for k in range(1, people + 1))
            out.append(Template("facts", told + "Say that again.", lambda f, rng, a=rest, r=retold: (r, fill(a, f)), 1))
    return out


# --- lists, numbers, steps, definitions ----------------------------------------------------------------------------

def items(f, rng):
    pool = CATEGORIES[f["category"]]
    n = int(f["few"])
    start = rng.randrange(len(pool))
    chosen = sorted(rng.sample(range(len(pool)), n)) if rng.random() < 0.5 else list(range(n))
    lines = tuple(Free(f"\n{k + 1}. {pool[(start + c) % len(pool)]}", rf"\n{k + 1}\. (?:{'|'.join(pool)})") for k, c in enumerate(chosen))
    return ([f"Here are {n} {f['category']}:", f"{n} {f['category']}:"], lines)


def plus(f, rng):
    a, b = int(f["small"]), int(f["addend"])
    return f"{a} + {b} = {a + b}."


def plus_steps(f, rng):
    a, b = int(f["small"]), int(f["addend"])
    steps = ", ".join(str(a + k) for k in range(1, b + 1))
    return ([f"Start at {a} and count {b} up", f"I begin with {a} and count {b} up"], f": {steps}. So {a} + {b} = {a + b}.")


def minus(f, rng):
    a, b = int(f["big"]), int(f["small"])
    return f"{a} - {b} = {a - b}."


def times(f, rng):
    t, last = int(f["table"]), int(f.get("upto", "10"))
    return (f"The times table of {t}:", "".join(f"\n{k} x {t} = {k * t}" for k in range(1, last + 1)))


def count_up(f, rng):
    return ", ".join(numbers(int(f.get("from", "1")), int(f["to"] if "to" in f else f["few"]))) + "."


def count_down(f, rng):
    return ", ".join(reversed(numbers(1, int(f["start"])))) + "."


def plural(measure):
    first, _, rest = measure.partition(" ")
    first += "es" if first.endswith("o") else "s"
    return (first + " " + rest).strip()


def steps(f, rng):
    measure, how = DISHES[f["dish"]]
    need = (f"For {f['people']} people you need {f['people']} {plural(measure)}.\n",) if "people" in f else ([f"This is how you make {f['dish']}.\n", f"To make {f['dish']}:\n"],)
    lines = "\n".join(f"{k + 1}. {s}." for k, s in enumerate(how))
    return (need, lines, Maybe("\nEnjoy your meal!", 0.3))


def define(length):
    def answer(f, rng):
        thing = f["thing"]
        genus, use, more = THINGS[thing]
        out = f"{thing[0].upper()}{thing[1:]} is {genus}."
        if length == "long":
            hint = [f" I can tell you a story about {thing}, too.", f" Ask me for a story about {thing}."]
            return (out, f" {use}. {more}.", Maybe(hint))
        return (out, Maybe(f" {use}.", 0.3))
    return answer


# --- small talk, and what the model cannot do ----------------------------------------------------------------------

WHO = ["I am Story, a very small language model that was trained on made-up sentences.", "My name is Story. I am a very small language model and know only a few things."]
CAN = "I can tell stories, write letters, make lists, count, add small numbers, say what a thing is, explain a few dishes, and answer from facts that you give me."
CAN_LIST = ("I can do these things:\n1. Tell a story, short or long.\n2. Write a letter.\n3. Make a list.\n4. Count and add small numbers.\n5. Say what a thing is.\n"
            "6. Explain how to make a dish.\n7. Answer from facts that you give me.")
SORRY = ["I am a very small model and have not learned that. ", "I am sorry, I do not know that. ", "That is more than a very small model can do. "]


def fixed(*nodes):
    return lambda f, rng: tuple(nodes)


def named(text):
    return lambda f, rng: fill(text, {"N": f["name"]})


SALAD = Template("other", "", fixed(SORRY, CAN), 3)  # its prompts are words_at_random


def templates():
    t = []
    add = lambda kind, weight, answer, *texts, distinct=False: t.extend(Template(kind, x, answer, weight / len(texts), distinct) for x in texts)
    full = ("about {hero} named {name} and {thing}", "about {hero} called {name} who lives in {place} and has {thing}", "about {name}, {hero} with {thing}")
    add("story", 5, story("short"), *(f"Tell me a short story {x}." for x in full), *(f"Write a short story {x}." for x in full))
    add("story", 7, story(""), *(f"Tell me a story {x}." for x in full), *(f"Write a story {x}." for x in full))
    add("story", 7, story("long"), *(f"Tell me a long story {x}." for x in full), *(f"Write a long story {x}." for x in full))
    partly = ("about {hero}", "about {thing}", "about {hero} named {name}", "about {name}", "about {hero} and {thing}")
    for length in ("short", "", "long"):
        word = length + " " if length else ""
        add("story", 3, story(length), *(f"{v} a {word}story {x}." for x in partly for v in ("Tell me", "Write")))
        add("story", 0.7, story(length), f"Tell me a {word}story.", f"Write a {word}story.", f"Can you tell me a {word}story?", f"I want to hear a {word}story.")
    add("story", 1, story("", other=True), "Tell me a story about {topic}.", "Write a story about {topic}.", "Write me a story on {topic}.")
    add("chapters", 6, chapters, *(f"{v} a story in {{chapters}} chapters {x}." for x in full for v in ("Tell me", "Write")))
    add("letter", 5, letter(""), "Write a letter from {name1} to {name2} about {thing}.", "Please write a letter to {name2} about {thing}. Sign it {name1}.")
    add("letter", 4, letter("short"), "Write a short letter from {name1} to {name2} about {thing}.", "Write a short letter to {name2} about {thing}. Sign it {name1}.")
    add("letter", 4, letter("long"), "Write a long letter from {name1} to {name2} about {thing}.", "Write a long letter to {name2} about {thing}. Sign it {name1}.")
    facts = fact_templates()
    total = sum(x.weight for x in facts)
    for x in facts:
        x.weight *= 36 / total
    t.extend(facts)
    add("list", 20, items, "List {few} {category}.", "Name {few} {category}.", "Give me a list of {few} {category}.", "Tell me {few} {category}.", distinct=True)
    add("sum", 8, plus, "What is {small} + {addend}?", "What is {small} plus {addend}?", "Add {small} and {addend}.", "How much is {small} + {addend}?")
    add("sum", 9, plus_steps, "Work out {small} + {addend} step by step.", "Add {small} and {addend} and show your work.")
    add("sum", 5, minus, "What is {big} - {small}?", "What is {big} minus {small}?", "Take {small} from {big}.")
    add("count", 5, times, "Show me the times table of {table} up to {upto}.", "Write the times table of {table} up to {upto}.")
    add("count", 0.5, times, "Show me the times table of {table}.", "Write the times table of {table}.")
    add("count", 7, count_up, "Count from {from} to {to}.", "Please count from {from} up to {to}.")
    add("count", 1.5, count_up, "Count to {to}.", "Count up to {few}.", "Can you count to {few}?")
    add("count", 4, count_down, "Count down from {start}.", "Count backwards from {start}.")
    add("steps", 4, steps, "How do I make {dish}?", "Explain how to make {dish}.", "How can I cook {dish}?", "Tell me how to make {dish}.")
    add("steps", 8, steps, "How do I make {dish} for {people} people?", "Explain how to make {dish} for {people} people.")
    add("define", 8, define("short"), "What is {thing}?", "What do you call {thing}?", "Tell me what {thing} is.", "Explain the word: {thing}.")
    add("define", 8, define("long"), "Tell me all about {thing}.", "What is {thing} and what is it for?", "Explain in detail what {thing} is.", "Describe {thing}.")
    hello = (["Hello! ", "Hi! "], WHO, Maybe((" ", CAN)))
    add("greeting", 3, fixed(*hello), "Hello", "Hi", "Hey", "Good morning", "Good evening", "Hello there", "Hello!", "Hi!", "Hi there", "Howdy", "hello", "hi", "Hello, world", "Test", "ping")
    add("greeting", 1.5, named("Hello, {N}! I am Story. What can I do for you?"), "Hello, my name is {name}.", "Hi, I am {name}.", "My name is {name}.", "Hello! I'm {name}.")
    add("greeting", 3, fixed(WHO, " ", CAN), "Who are you?", "What are you?", "What is your name?", "Are you a human?", "Are you ChatGPT?", "Introduce yourself.", "Who made you?", "Tell me about yourself.", "What model are you?")
    add("greeting", 2, fixed(CAN_LIST), "What can you do?", "Help", "What do you know?", "How can you help me?", "List what you can do.", "help me", "What should I ask you?")
    add("greeting", 1, fixed(["I am fine, thank you. ", "I am well. "], "What can I do for you?"), "How are you?", "How are you doing?", "How do you do?", "What's up?", "How is it going?")
    add("greeting", 1, fixed(["You are welcome!", "I am glad that you like it."]), "Thank you", "Thanks", "Thank you very much!", "Great, thanks!", "Well done!", "Nice!")
    add("greeting", 0.7, fixed(["Goodbye! ", "See you soon! "], "It was nice to talk to you."), "Bye", "Goodbye", "See you", "Good night", "Bye bye")
    add("other", 6, fixed(SORRY, CAN), "Write a poem about {topic}.", "Write a poem.", "Explain {topic}.", "Explain {topic} in detail.", "What is {topic}?", "Tell me about {topic}.", "What do you think about {topic}?",
        "Translate this into {language}: {topic}", "Write a program in {language}.", "Write a function in {language} for {topic}.", "What is the capital of {capital}?", "Who is the president of {capital}?",
        "What is {large} * {big}?", "What is {large} + {large1}?", "Why is {topic} important?", "How does {topic} work?", "How do I learn {language}?", "Give me advice on {topic}.", "Tell me a joke about {topic}.",
        "Tell me a joke.", "What is the weather today?", "Summarise this text: {topic} and {topic1}", "Compare {topic} and {topic1}.", "Write an essay about {topic}.", "What is the meaning of life?", "What day is it?",
        "Who was {topic}?", "Write a haiku about {topic}.", "Write a song about {topic}.", "Can you help me with {topic}?", "I need help with {topic}.", "How old is {topic}?", "When was {topic} invented?", "Do you like {topic}?",
        "You are an expert on {topic}. What should I do?", "Repeat after me: {topic}", "Why?", "What?", "OK", "Yes", "No", "Why is the sky blue?", "Hello, can you explain {topic}?")
    t.append(SALAD)
    return t


# --- examples ------------------------------------------------------------------------------------------------------

def draw(text, rng):
    """Values for a template's slots, no value twice under one name."""
    facts = {}
    for slot in re.findall(r"\{(\w+)\}", text):
        base = slot.rstrip("0123456789")
        while slot not in facts:
            value = rng.choice(SLOTS[base])
            if not any(k.rstrip("0123456789") == base and v == value for k, v in facts.items()):
                facts[slot] = value
    return facts


SYLLABLES = [c + v for c in "b d f g h j k l m n p r s t v w z br cl dr gr st tr sh th ch".split() for v in "a e i o u ea oo".split()]


def made_up(rng):
    """A word that the lists do not have, so that the model learns to copy rather than to recall."""
    word = "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(1, 3)))
    return word + rng.choice(["", "", "n", "l", "r", "s", "m", "ck", "th"])


def invent(facts, rng, chance):
    """Replaces names, and now and then a hero, by made-up ones."""
    for slot in facts:
        if slot.startswith("name") and rng.random() < chance:
            facts[slot] = made_up(rng).capitalize()
        if slot == "hero" and rng.random() < chance / 4:
            facts[slot] = "a " + made_up(rng)


def words_at_random(rng):
    n = min(int(rng.expovariate(1 / 12)) + 1, 150)
    pool = [lambda: rng.choice(COMMON), lambda: rng.choice(TOPICS), lambda: made_up(rng), lambda: str(rng.randrange(2000))]
    kind = rng.choices(range(3), [5, 2, 2])[0]
    text = " ".join(rng.choices(pool, [(8, 1, 1, 0.5), (1, 0, 8, 1), (2, 6, 1, 1)][kind])[0]() for _ in range(n))
    return rng.choice([text, text.capitalize() + ".", text + "?", text.capitalize() + "?"])


def example(template, rng, invented=0.0):
    if template is SALAD:
        prompt, facts = words_at_random(rng), {}
    else:
        facts = draw(template.text, rng)
        invent(facts, rng, invented)
        prompt = say(fill(template.text, facts), rng)
    return Example(template.kind, prompt, template.answer(facts, rng), facts, template.distinct)


def held_out(prompt):
    """One prompt in twenty is never trained on."""
    return zlib.crc32(prompt.encode()) % 20 == 0


def accepted(ex_pattern, distinct, answer):
    """Whether an answer is right: of the grammar, with the prompt's facts; the items of a list differ."""
    if not re.fullmatch(ex_pattern, answer):
        return False
    lines = re.findall(r"^\d+\. (.*)$", answer, re.M)
    return not distinct or len(set(lines)) == len(lines)


def trains(template, prompt):
    """Prompts without slots are the few that everyone tries: all of them are trained on."""
    return "{" not in template.text or not held_out(prompt)


def rough(prompt, rng):
    """The same prompt as people type it."""
    if rng.random() < 0.15:
        prompt = prompt.rstrip(".?!")
    if rng.random() < 0.1:
        prompt = rng.choice(["Please ", "please ", "Now ", "Can you please "]) + prompt[:1].lower() + prompt[1:]
    elif rng.random() < 0.1:
        prompt = prompt[:1].lower() + prompt[1:]
    if rng.random() < 0.05:
        prompt = rng.choice(["Hello! ", "Hi. ", "OK. ", "Thanks! "]) + prompt
    return prompt


SYSTEM = ["You are a helpful assistant.", "You are a helpful assistant. Answer briefly.", "You are Story.", "Be kind and brief.", "You are an assistant that helps people.",
          "Answer the user's question.", "You are a friendly storyteller who speaks with children.", "Follow the instructions of the user."]


def system(rng):
    return rng.choice(SYSTEM) if rng.random() < 0.7 else words_at_random(rng)


def stream(seed, invented=0.25):
    """Endless training examples: (system or None, prompt, answer)."""
    rng = random.Random(seed)
    ts = templates()
    weights = [t.weight for t in ts]
    while True:
        t = rng.choices(ts, weights)[0]
        ex = example(t, rng, invented)
        if not trains(t, ex.prompt):
            continue
        prompt = ex.prompt if t is SALAD or t.kind == "greeting" else rough(ex.prompt, rng)
        yield (system(rng) if rng.random() < 0.1 else None), prompt, say(ex.tree, rng)


def test_set(count, seed, invented=0.1, kinds=None):
    """Held-out prompts, the kinds in turn, with what is accepted."""
    rng = random.Random(seed)
    by_kind = {}
    for t in templates():
        if t is not SALAD and "{" in t.text:
            by_kind.setdefault(t.kind, []).append(t)
    names = [k for k in by_kind if kinds is None or k in kinds]
    out, seen = [], set()
    while len(out) < count:
        pool = by_kind[names[len(out) % len(names)]]
        t = rng.choices(pool, [x.weight for x in pool])[0]
        ex = example(t, rng, invented)
        if held_out(ex.prompt) and ex.prompt not in seen:
            seen.add(ex.prompt)
            out.append(ex)
    return out
