"""Common English words: one token each for most tokenizers, so texts of them have a known length."""

_TEXT = """
able about above across action active actual address after again against age agent agree ahead air all allow almost
alone along already also always among amount ancient and animal another answer any appear apple area arm army around
arrive art article ask aside attack attempt author autumn average away baby back bad balance ball band bank bar base
basic battle beach bear beauty because become bed before begin behind believe below benefit best better between beyond
big bill bird birth black block blood blue board boat body bond book border born both bottom box boy branch bread
break bridge brief bright bring broad brother brown build burn bus business busy but butter buy call calm camera camp
can capital car card care carry case castle cat catch cause cell center central century certain chain chair chance
change chapter charge chart check child choice choose church circle city claim class clean clear climate clock close
cloth cloud club coast coat code coffee cold collect college color column come common company complete concept
condition contact content control cook cool copper copy corn corner cost cotton count country couple course court
cover create credit crew crop cross crowd culture cup current custom cut cycle daily damage dance danger dark data
date daughter day dead deal dear death debate decade decide deep degree demand depend depth describe desert design
desk detail device dinner direct discover discuss distance divide doctor dog dollar door double doubt down draw dream
dress drink drive drop dry during dust duty each ear early earth east easy eat edge effect effort egg eight either
electric element else empty end enemy energy engine enjoy enough enter entire equal escape even evening event ever
every exact example except exist expect expert explain express extra eye face fact factor fail fair fall family famous
far farm fast father favor fear feature feed feel feet female fence few field fight figure file fill film final find
fine finger finish fire firm first fish fit five flat flight floor flow flower fly focus follow food foot for force
foreign forest forget form formal fort forward four frame free fresh friend from front fruit fuel full fun function
future game garden gas gate gather general gentle gift girl give glass goal gold good govern grain grand grass gray
great green ground group grow guard guess guest guide habit hair half hall hand happen happy harbor hard hat have head
health hear heart heat heavy height hello help here high hill history hold hole holiday home honor hope horse hospital
host hot hotel hour house how huge human hundred hunt idea image impact income increase indeed index inside instead
interest into iron island issue item join joint journey judge jump junior just keep key kind king kitchen knife know
labor lack lady lake land language large last late laugh law layer lead leaf learn least leather leave left leg legal
length less lesson letter level library life lift light like limit line link lion list listen little live local lock
long look loose lord lose loss loud love low lower lucky lunch machine magic main major make male manage many map
march mark market master match material matter maybe meal mean measure meat medium meet member memory mention menu
message metal method middle might mile milk mind mine minor minute mirror miss mission mix model modern moment money
month moon moral more morning most mother motion mountain mouth move movie much museum music must name narrow nation
native nature near neck need neighbor never new news next nice night nine noise none normal north nose note nothing
notice novel now number object ocean of off offer office often oil old once one only onto open opinion option orange
order ordinary origin other outer outside over own
"""
WORDS = tuple(_TEXT.split())
