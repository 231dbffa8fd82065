"""The words of the grammar: what its prompts and answers are made of. All text here is the project's own."""

NAMES = """Ada Alba Amos Anna Arlo Asha Basil Bea Ben Bo Cara Carl Cleo Cora Dana Dora Dov Edgar Edie Eli Ella Emil Emma Enzo Esme Eva
Ezra Faye Finn Flora Fred Gia Greta Gus Hana Hank Hazel Hugo Ida Igor Ines Iris Ivan Ivy Jack Jade Jane Jon Josie Juan Jude June Kai Kate
Kira Lars Lea Lena Leo Lily Lola Lou Lucy Luis Luna Mara Marco Max May Mia Milo Mina Moss Nadia Ned Nell Nico Nina Noah Nora Olga Oli Omar
Opal Oscar Otto Owen Paul Pia Pim Rafi Remy Rene Rita Rosa Ruby Ruth Sam Sara Seth Sofia Stan Sven Tara Ted Tess Theo Tilda Tim Tom Ugo Uma
Vera Vic Walt Wanda Will Wren Yara Yuri Zara Zeke Zoe""".split()

HEROES = """a fox|an owl|a bear|a mouse|a rabbit|a cat|a dog|a hen|a frog|a wolf|a goat|a horse|a duck|a hedgehog|a squirrel|a turtle|a dragon|
a robot|a knight|a wizard|a pirate|a princess|a king|a queen|a boy|a girl|a giant|a fairy|a baker|a sailor|a farmer|a painter""".replace("\n", "").split("|")

# Every thing: what kind of thing it is, what it is for, and one more fact. The number of scenes in its story is its place in the list, modulo 3.
THINGS = {
    "a lantern": ("a lamp that you can carry", "It gives light in the dark", "Most lanterns are made of metal and glass"),
    "a kite": ("a toy that flies on a string", "It needs a windy day", "Most kites are made of paper and thin sticks"),
    "a key": ("a small piece of metal with teeth", "It opens and closes a lock", "A lost key is hard to find"),
    "a drum": ("an instrument that you hit with sticks", "It keeps the beat of a song", "Big drums sound deep and small drums sound high"),
    "a boat": ("a thing that floats and carries people", "It goes over rivers and lakes", "Some boats have sails and some have oars"),
    "a map": ("a picture of a place from above", "It shows the way", "Old maps are often drawn by hand"),
    "a bell": ("a hollow cup of metal that rings", "It calls people from far away", "The biggest bells hang in towers"),
    "a hat": ("a thing that you wear on your head", "It keeps off sun and rain", "Hats can be made of straw, wool or felt"),
    "a crown": ("a ring of gold that a king or a queen wears", "It shows who rules", "Many crowns carry bright stones"),
    "a book": ("many pages bound together", "It holds stories and knowledge", "Books are kept on shelves"),
    "an umbrella": ("a roof of cloth on a stick", "It keeps you dry in the rain", "Most umbrellas can be folded"),
    "a violin": ("an instrument with four strings", "It sings when a bow moves over it", "Violins are made of thin wood"),
    "a compass": ("a small tool with a needle", "It always points to the north", "Sailors use it far from land"),
    "a mirror": ("a piece of glass that shows what is before it", "It lets you see your own face", "A mirror turns left and right around"),
    "a ladder": ("two long poles with steps between them", "It helps you to climb up high", "A ladder must stand on firm ground"),
    "a teapot": ("a pot with a spout and a lid", "It keeps tea hot", "Most teapots are made of clay or metal"),
    "a basket": ("a box woven from thin branches", "It carries bread, fruit and eggs", "Baskets are light and strong"),
    "a feather": ("a light part of a bird", "It keeps the bird warm and helps it to fly", "People once wrote with feathers"),
    "a shell": ("the hard coat of a small sea animal", "It keeps the animal safe", "You can find shells on the beach"),
    "a clock": ("a machine that shows the time", "It tells you when to get up", "Old clocks tick loudly"),
    "a candle": ("a stick of wax with a string inside", "It burns and gives a soft light", "Candles were used long before lamps"),
    "a blanket": ("a large piece of warm cloth", "It keeps you warm in bed", "Many blankets are made of wool"),
    "a flute": ("a thin pipe with holes", "It makes music when you blow into it", "Flutes are among the oldest instruments"),
    "a cup": ("a small vessel to drink from", "It holds water, milk or tea", "Most cups have a handle"),
    "a ring": ("a small band for a finger", "It is worn as a sign or for beauty", "Many rings are made of gold or silver"),
    "a sled": ("a seat that slides over snow", "It is used to go down hills in winter", "Dogs can pull a sled, too"),
    "a telescope": ("a tube with lenses", "It shows things that are far away", "With it you can see mountains on the moon"),
    "a garden": ("a piece of land with plants", "It gives flowers, fruit and shade", "A garden needs water and care"),
    "a wagon": ("a box on four wheels", "It carries heavy loads", "Horses can pull a wagon"),
    "a scarf": ("a long piece of cloth for the neck", "It keeps you warm in the cold wind", "Many scarves are knitted by hand"),
}

PLACES = """the forest|the old mill|the green valley|the harbour|the mountains|the village|the castle|the desert|the island|the meadow|the city|
the cave|the river bank|the lighthouse|the farm|the swamp""".replace("\n", "").split("|")

COLOURS = "red blue green yellow white black brown pink purple orange grey golden silver".split()
JOBS = "a baker|a doctor|a teacher|a farmer|a sailor|a painter|a nurse|a pilot|a singer|a gardener|a cook|a judge".split("|")
FOODS = "bread|soup|apples|rice|cheese|cake|fish|noodles|honey|plums|carrots|eggs".split("|")

CATEGORIES = {
    "animals": "fox owl bear mouse rabbit cat dog hen frog wolf goat horse duck turtle lion tiger zebra camel".split(),
    "fruits": "apple pear plum cherry grape lemon orange banana peach mango melon fig kiwi apricot date lime".split(),
    "vegetables": "carrot potato onion leek cabbage spinach pea bean beet radish tomato pepper celery garlic turnip pumpkin".split(),
    "colours": "red blue green yellow white black brown pink purple orange grey gold silver beige turquoise violet".split(),
    "tools": "hammer saw drill pliers wrench chisel file screwdriver axe shovel rake ladder level clamp knife brush".split(),
    "instruments": "violin flute drum piano guitar harp trumpet cello oboe clarinet organ banjo tuba horn bell lute".split(),
    "flowers": "rose tulip daisy lily poppy violet iris orchid lavender sunflower pansy peony dahlia jasmine lilac aster".split(),
    "birds": "owl robin sparrow crow swan duck goose eagle hawk heron stork finch gull raven swift wren".split(),
    "clothes": "shirt coat hat scarf sock shoe glove belt dress skirt jacket boot vest cap sweater robe".split(),
    "drinks": "water milk tea coffee juice cocoa cider lemonade soda wine beer punch broth syrup shake nectar".split(),
    "countries": "France Spain Italy Japan India China Brazil Chile Peru Kenya Egypt Norway Sweden Poland Greece Canada".split(),
    "trees": "oak pine birch maple elm ash willow beech cedar fir spruce larch poplar lime yew alder".split(),
    "vehicles": "car bus train boat bicycle truck tram plane ship van scooter taxi tractor ferry wagon sled".split(),
    "jobs": "baker doctor teacher farmer sailor painter nurse pilot singer gardener cook judge tailor miner clerk writer".split(),
}

# Every dish: what one person needs of it, and the steps.
DISHES = {
    "tea": ("cup of water", ["Boil the water", "Put tea leaves into the pot", "Pour the water over the leaves", "Wait for four minutes"]),
    "porridge": ("cup of oats", ["Put the oats into a pot", "Add milk and a little salt", "Stir over a low fire", "Serve it with honey"]),
    "toast": ("slice of bread", ["Heat the pan", "Toast the bread on both sides", "Spread butter on it"]),
    "soup": ("bowl of water", ["Cut the carrots, the leek and the potatoes", "Heat some oil in a large pot", "Fry the leek until it is soft",
                               "Add the water and the other vegetables", "Cook it for half an hour", "Add salt and pepper", "Serve it hot"]),
    "pancakes": ("egg", ["Beat the eggs in a bowl", "Add flour, milk and salt", "Let the dough rest", "Heat butter in a pan",
                         "Pour in a little dough", "Turn the pancake when it is brown"]),
    "a salad": ("tomato", ["Wash the leaves", "Cut the tomatoes", "Mix oil, lemon and salt", "Pour it over the salad", "Serve it at once"]),
    "bread": ("cup of flour", ["Mix the flour with yeast, salt and water", "Knead the dough for ten minutes", "Cover it and let it rise for an hour",
                               "Shape a loaf", "Let it rise again", "Heat the oven", "Bake the loaf until it is brown", "Let it cool on a rack"]),
    "an omelette": ("egg", ["Beat the eggs with salt", "Melt butter in a pan", "Pour in the eggs", "Fold it when it is nearly firm"]),
    "rice": ("cup of rice", ["Wash the rice", "Add two parts of water", "Bring it to the boil", "Cover the pot and wait until the water is gone"]),
    "cocoa": ("cup of milk", ["Warm the milk", "Stir in cocoa and sugar", "Pour it into a cup"]),
    "lemonade": ("lemon", ["Press the lemons", "Add sugar and cold water", "Stir until the sugar is gone", "Add ice", "Serve it with mint"]),
    "apple cake": ("apple", ["Peel and cut the apples", "Mix butter and sugar", "Beat in the eggs", "Add the flour", "Fill the dough into a tin",
                             "Press the apples into it", "Bake it for forty minutes", "Let it cool before you cut it", "Dust it with sugar"]),
}

# What the model has not learned, to teach it to say so.
TOPICS = """love|the sea|summer|quantum physics|the moon|history|money|football|chess|a computer|the internet|politics|the weather|black holes|
gravity|music|art|winter|my homework|an essay|a database|the economy|a virus|photosynthesis|electricity|philosophy|religion|evolution|dinosaurs|
volcanoes|climate|a rocket|space travel|machine learning|neural networks|a queue|latency|a server|batching|streaming|Kubernetes|Docker|Linux|
SQL|a function|recursion|a linked list|sorting|a binary tree|the French Revolution|Shakespeare|Mozart|Einstein|Napoleon|Cleopatra|Picasso|Rome|
ancient Egypt|a car engine|the stock market|taxes|insurance|a mortgage|vaccines|the heart|the brain|sleep|dreams|yoga|running|a diet|vitamins|
friendship|happiness|war|peace|freedom|democracy|a marriage|babies|dogs and cats|my boss|a new job|an interview|a birthday|Christmas|a wedding""".replace("\n", "").split("|")
LANGUAGES = "French|German|Spanish|Italian|Chinese|Japanese|Python|Go|Rust|Java|C|JavaScript".split("|")
CAPITALS = "France|Germany|Spain|Australia|Brazil|Canada|Japan|Kenya|Norway|Peru|Poland|Turkey|Texas|Europe".split("|")
COMMON = """the of and to in is that for it as was with be by on not this are or from at which have an had they you were their one all we can has there
been if more when will would who so no what up out them then than into some could time very these two may only do other its over such most made
after also many before must through years where much your way well down should because each just those people how too little state good make world
still work long get here between both life under never day same another know while last might us great old year off come since against go came right
used take three house use during without again place around however small home found system model token cache request code number data value please
explain following language summary short question context document table problem result change program science history water light family company""".split()
