# SPDX-License-Identifier: MIT
"""Word lists from which unknowns.py makes questions without an answer.

Every sixth word of a list is held out: training never sees it.
"""

HELD_EVERY = 6


class Words:
    def __init__(self, text, sep=None):
        words = list(dict.fromkeys(
            " ".join(w.split()) for w in text.split(sep) if w.strip()))
        self.train = [w for n, w in enumerate(words) if (n + 1) % HELD_EVERY]
        self.held = words[HELD_EVERY - 1::HELD_EVERY]

    def pick(self, rng, held=False):
        return rng.choice(self.held if held else self.train)


# For names of tools, options and messages that do not exist.
STEMS = Words("""
    frob burn sync tune probe trace dump watch scan boost clean paint fold
    merge split guard wake sleep spin shake drive park load store link bind
    count check fetch push pull send recv mount format erase lock unlock map
    pack sort hash sign audit query start stop pause resume record replay
    bridge mirror shadow ghost turbo nitro magic super mega micro nano core
    fan led clock power volt heat cool light sound video audio net disk file
    user group root shell log stat info data cache queue stack heap frame
    layer token model expert prompt graph tensor matrix vector kernel driver
    backup restore install remove delete update config setup control manage
    profile report debug test bench stress verify repair heal patch plan
    frobnicate calibrate visualize optimize translate compress encrypt
    benchmark overclock undervolt diagnose inspector daemon agent proxy
    apple banana tiger zebra falcon hammer rocket puzzle garden river window
    yellow purple silver bronze copper quick slow happy lazy crazy fuzzy
    list copy move rename search find replace filter select insert join
    import export convert render compile decode encode parse lint
    schedule dispatch balance migrate snapshot rollout deploy publish attach
    detach enable disable activate connect discover register assign reserve
    allocate garbage sweep drain purge prune shrink grow resize scale
    sampler scorer trainer loader saver runner walker finder keeper cleaner
    status version journal ledger index catalog registry archive
    voltage current energy battery charger socket cable port switch
    gateway tunnel beacon signal timer counter gauge meter ruler
    console panel viewer editor helper wizard gadget widget doctor pilot""")
LETTERS = "abcdefghijklmnopqrstuvwxyz"

# Things of the world outside.
THINGS = Words("""
    the eiffel tower|paris|spain|japan|italy|rome|a cake|bread|soup|my car|
    a bicycle|a guitar|football|tennis|chess|the moon|the sun|mars|the ocean|
    a river|a poem|a song|a film|a novel|music|love|money|gold|silver|shoes|
    a house|a garden|roses|apples|bananas|potatoes|coffee|tea|wine|cheese|
    fish|chicken|a cow|an elephant|the president|the queen|shakespeare|mozart|
    einstein|newton|dinosaurs|a volcano|the weather|rain|snow|winter|school|
    history|geography|a doctor|medicine|a train|an airplane|a ship|new york|
    london|berlin|china|africa|the world cup|the olympics|a wedding|
    a birthday|a holiday|the stock market|taxes|politics|religion|philosophy|
    art|photography|a painting|a statue|a bridge|a castle|the pyramids|
    france|germany|brazil|india|canada|australia|russia|egypt|mexico|sweden|
    a dog|a cat|a horse|a bird|bees|the universe|black holes|gravity|rice|
    pizza|pasta|tomatoes|chocolate|sugar|salt|beer|water|milk|a tree|flowers|
    the human heart|the brain|vitamins|sleep|a cold|headache|my tooth|a baby|
    linux history|windows|an iphone|android|bitcoin|facebook|the internet|
    python|javascript|rust|docker|kubernetes|cuda|pytorch|nvidia|intel|
    a raspberry pi|a printer|a mouse|a keyboard|my router|wifi|bluetooth|
    bach|beethoven|the beatles|a movie|star wars|harry potter|superman|
    an umbrella|a ladder|carpets|a sofa|curtains|a lamp|candles|soap|shampoo|
    a towel|socks|a hat|gloves|jeans|a skirt|a zipper|buttons|silk|leather|
    a hammer|nails|glue|paint|bricks|cement|a roof|windows 11|a door|a fence|
    a tractor|a truck|a bus|a taxi|the subway|a helicopter|a rocket|a balloon|
    a sailboat|a canoe|skiing|swimming|running|yoga|golf|baseball|hockey|
    basketball|boxing|dancing|karate|cricket|rugby|a marathon|a trophy|poker|
    bingo|a puzzle|lego|toys|a doll|dragons|ghosts|vampires|zombies|unicorns|
    fairies|wizards|santa claus|christmas|easter|halloween|ramadan|passover|
    a turkey|pancakes|waffles|honey|butter|eggs|bacon|sausages|garlic|onions|
    carrots|spinach|lettuce|cucumbers|mushrooms|lemons|oranges|grapes|melons|
    strawberries|cherries|peaches|pears|nuts|olives|vinegar|mustard|ketchup|
    cookies|ice cream|yogurt|cereal|oatmeal|noodles|sushi|tacos|burgers|
    lions|tigers|bears|wolves|foxes|rabbits|squirrels|monkeys|giraffes|zebras|
    camels|kangaroos|penguins|eagles|owls|parrots|swans|sharks|whales|dolphins|
    octopuses|snakes|lizards|turtles|frogs|spiders|ants|butterflies|snails|
    oak trees|palm trees|grass|moss|cactus|tulips|orchids|lilies|seeds|soil|
    mountains|valleys|deserts|forests|islands|beaches|waterfalls|caves|
    glaciers|earthquakes|hurricanes|tornadoes|lightning|rainbows|clouds|fog|
    jupiter|saturn|venus|pluto|comets|galaxies|asteroids|astronauts|aliens|
    time travel|atoms|electrons|photons|oxygen|carbon|iron|copper|uranium|
    diamonds|magnets|batteries|solar panels|wind turbines|coal|petrol|plastic|
    blood|bones|teeth|eyes|ears|skin|hair|lungs|the liver|the stomach|viruses|
    bacteria|cancer|diabetes|the flu|vaccines|surgery|nurses|dentists|lawyers|
    judges|police|firefighters|soldiers|pirates|knights|kings|emperors|popes|
    napoleon|cleopatra|caesar|columbus|galileo|darwin|freud|marx|plato|
    socrates|buddha|picasso|van gogh|michelangelo|rembrandt|monet|elvis|abba|
    jazz|opera|ballet|violins|pianos|drums|trumpets|flutes|choirs|concerts|
    novels|comics|newspapers|magazines|libraries|bookshops|theatres|museums|
    banks|loans|inflation|insurance|pensions|salaries|rent|elections|laws|
    treaties|wars|peace|democracy|the senate|the euro|the dollar|gold coins|
    toronto|sydney|moscow|tokyo|seoul|mumbai|cairo|lagos|lima|rio|chicago|
    boston|texas|florida|alaska|hawaii|norway|finland|poland|greece|turkey|
    portugal|ireland|scotland|switzerland|austria|hungary|ukraine|iran|iraq|
    pakistan|thailand|vietnam|korea|nigeria|kenya|peru|chile|cuba|macos|java|
    perl|php|haskell|excel|word|photoshop|email|spam|passwords|hackers|
    smartphones|tablets|televisions|radios|cameras|drones|robots|lasers|
    scooters|motorcycles|skateboards|bicycles|horses|donkeys|sheep|goats|pigs|
    my boss|my wife|my brother|my neighbour|my teacher|my homework|my garden|
    my dog|my holiday|my bank account|my shoes|my kitchen|the office|the gym|
    the church|the hotel|the airport|the hospital|the station|
    the market""", "|")
VERBS = Words("""invented discovered built won wrote sang made directed founded
    played drew composed killed married bought painted""")
DOINGS = Words("""cook fix bake paint wash sing draw translate repair sell
    plant learn clean visit buy feed build install grow make teach drive""")
PARTS = Words("""capital price history population meaning color age size height
    language king weight name taste author""")
KINDS = Words("""big old famous expensive good beautiful long tall popular
    healthy fast cold dangerous sweet""")

# Things of the board that nobody told the model.
BOARD = Words("""
    the price of the board|the weight of the board|the colour of the board|
    the warranty|the usb ports|the wifi chip|the bluetooth version|
    the hdmi output|the battery|the fan noise|the case|the screws|
    the ethernet speed|the audio jack|the serial number|the release date|
    the manufacturer|the shop|the delivery time|the gpu|the display|
    the camera connector|the size of the board in millimeters|the process node|
    the number of transistors|the cpu model|the cpu cores|the boot logo|
    the operating humidity|the shipping cost|the next version of the board|
    the led colours|the reset button|the power connector|the sd card slot|
    the touch screen|the microphone|the antenna|the gpio pins|the i2c bus|
    the bios|the secure boot key|the glue|the paint|the box|the stickers|
    the mounting holes|the feet|the heat sink colour|the fan speed|the lid|
    the connector types|the cable length|the power supply brand|
    the certification|the country of origin|the designer|the invoice|
    the discount|the refund|the spare parts|the repair service|the user group|
    the forum|the newsletter|the logo|the name of the inventor|the factory|
    the radio|the infrared port|the vga port|the joystick|the keyboard|
    the support phone number|the sales figures|
    the roadmap|the competitor boards|the resale value|the packaging""", "|")
BOARD_QUESTIONS = Words("""
    how much does the board cost|how heavy is the board|does it have wifi|
    does it have bluetooth|what color is the board|does the board have wifi|
    where can i buy the board|who sells the board|what does the board cost|
    how many usb ports does it have|when was the board released|
    is it expensive|does it have hdmi|how loud is the fan|
    is there a case for it|
    how long is the warranty|who makes the board|can i connect a monitor|
    what cpu does it have|how many cpu cores does it have|is it waterproof|
    does it have a battery|how big is the board in cm|where is it made|
    how much is the board|what is the price|can i return the board|
    does it have an sd card slot|is there a new version of the board|
    does it have audio|can i play games on it|does it run windows|
    how many boards were sold|what is the serial number of my board|
    does it have ethernet|does the board have bluetooth|
    does it have usb""", "|")
REQUESTS = Words("""
    write a poem|write a python program|write an essay|
    translate this to german|tell me a story|sing a song|play music|
    set an alarm|open the door|
    call my mother|order a pizza|book a flight|send an email|take a photo|
    summarize this text|draw a picture|write a letter|fix my code|
    do my homework|turn on the light|remind me tomorrow|search the web|
    write a haiku|write a shell script|tell me the news|read my mail|
    recommend a film|make a plan for my day|play chess with me|
    find a restaurant|buy me a ticket|rewrite this sentence|spell my name|
    write a love letter|write some java code|roll a dice|guess my age|
    sort this list|check my spelling|create a website""", "|")
WORLD = Words("""
    what is the capital of france|who won the world cup|
    what is the weather today|how do i cook rice|what is the meaning of life|
    who is the president|what is the price of gold|how old is the universe|
    what time is it|how do i bake bread|who wrote hamlet|
    what is the tallest mountain|how far is the moon|who painted the mona lisa|
    how do i grow tomatoes|what day is it|who is the king of spain|
    how many people live in china|when did the war end|what is love|
    why is the sky blue|how do planes fly|what is the largest ocean|
    who discovered america|how do i lose weight|what should i eat tonight|
    where is my phone|how much is a house|what year is it|is god real|
    who will win the election|what is my name|how old am i|where do i live|
    what is the speed of light|how many planets are there|
    how many continents are there|who built the pyramids|what is gravity|
    how do magnets work|what is the population of india|how old is the earth|
    who sang yesterday|when was the first moon landing|how do i fix my bike|
    where is the nearest shop|what is the best pizza|how deep is the ocean|
    what causes rain|how does a car engine work|what do cows eat|
    how many days are in a year|how many bones do humans have|
    what is the longest river|how many stars are in the sky|
    what is the fastest animal|who is the richest man|what is a black hole|
    how do i get a visa|what is my ip address|where is the train station|
    how many hours are in a day|what should i wear today|
    how do i make coffee|who was the first man on the moon|
    who invented the telephone|what is the capital of spain|
    what is the capital of italy|what is the boiling point of water|
    how do i learn english|which car should i buy|what is a good book|
    how do i tie a tie|what is the best phone|how tall is mount everest|
    what is photosynthesis|who was napoleon""", "|")
