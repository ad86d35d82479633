// Tests that no retired word stands in the project. Retired words are names that it has given up (retired_words.txt).
// not_yet.txt may permit a number of places for a word that is not gone yet.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "packaging/house/house.hpp"
#include "packaging/house/not_yet.hpp"
#include "packaging/house/words.hpp"

namespace collectives::house {
namespace {

const std::vector<std::string_view> kMeasures = {"retired_word"};

std::vector<Excess> excesses_of(const std::vector<FoundWord>& found) {
  std::map<std::string, double> places;
  for (const FoundWord& each : found) ++places[each.word->word];
  std::vector<Excess> excesses;
  for (const auto& [word, count] : places) excesses.push_back({"retired_word", word, count, ""});
  return excesses;
}

/// Returns one line for each place of the words that not_yet.txt does not cover.
std::string uncovered_places(const std::vector<FoundWord>& found, const std::vector<Excess>& not_yet) {
  std::set<std::string> uncovered;
  for (const Excess& excess : excesses_of(found))
    if (!differences({excess}, not_yet, {}).empty()) uncovered.insert(excess.subject);
  std::vector<Finding> places;
  for (const auto& [word, where] : found)
    if (uncovered.contains(word->word))
      places.push_back({where.path, where.line, fmt::format("{}: {}", word->word, where.text)});
  return to_text(places);
}

TEST(Names, HoldNoRetiredWord) {
  const auto words = read_retired_words(read_file(kHouse / "retired_words.txt"));
  const auto found = find_words(the_tree(), words);
  const auto now = excesses_of(found);
  const auto not_yet = read_not_yet(read_file(kHouse / "not_yet.txt"));
  EXPECT_EQ(differences(now, not_yet, kMeasures), "")
      << uncovered_places(found, not_yet) << "Lines of not_yet.txt that hold now:\n"
      << not_yet_lines(now);
}

class Planted : public ::testing::Test {
 protected:
  static std::string found_in(const std::string& path, const std::string& text) {
    static const auto words = read_retired_words(
        "# list\ncoined zibble\ncoined guard_zorp\nprivate lattice  # Subgroup\n"
        "allowed zibble src/core/tuning.cpp\n");
    std::string list;
    for (const FoundWord& each : find_words({{path, text}}, words))
      list += fmt::format("{}:{} {};", each.where.path, each.where.line, each.word->word);
    return list;
  }
};

TEST_F(Planted, CoinedWordIsFoundInAComment) {
  EXPECT_EQ(found_in("src/a.cpp", "int x;\n// A Zibble of ranks.\n"), "src/a.cpp:2 zibble;");
  EXPECT_EQ(found_in("src/a.cpp", "/* zibbles */\n"), "src/a.cpp:1 zibble;");
  EXPECT_EQ(found_in("scripts/a.sh", "# in a zibble\n"), "scripts/a.sh:1 zibble;");
}

TEST_F(Planted, CoinedWordIsFoundInAnIdentifier) {
  EXPECT_EQ(found_in("src/a.cpp", "int bytes_of_zibble;\n"), "src/a.cpp:1 zibble;");
  EXPECT_EQ(found_in("src/a.cpp", "class ZibbleOfRanks;\n"), "src/a.cpp:1 zibble;");
  EXPECT_EQ(found_in("src/a.cpp", "\n\nconst int kZibbles = 1;\n"), "src/a.cpp:3 zibble;");
  EXPECT_EQ(found_in("src/a.cpp", "void guardZorp();\nvoid guard_zorp();\n"),
            "src/a.cpp:1 guard_zorp;src/a.cpp:2 guard_zorp;");
}

TEST_F(Planted, CoinedWordIsFoundInAFileNameAStringAndADocument) {
  EXPECT_EQ(found_in("src/zibble/a.cpp", ""), "src/zibble/a.cpp:0 zibble;");
  EXPECT_EQ(found_in("tests/zibble_test.cpp", ""), "tests/zibble_test.cpp:0 zibble;");
  EXPECT_EQ(found_in("src/a.cpp", "throw Error(\"a zibble\");\n"), "src/a.cpp:1 zibble;");
  EXPECT_EQ(found_in("docs/gpu.md", "The `zibble`.\n"), "docs/gpu.md:1 zibble;");
}

TEST_F(Planted, PrivateWordIsFoundInAnIdentifierAndAFileName) {
  EXPECT_EQ(found_in("src/a.hpp", "class StageLattice;\nint lattices_left;\n"),
            "src/a.hpp:1 lattice;src/a.hpp:2 lattice;");
  EXPECT_EQ(found_in("src/lattice.hpp", ""), "src/lattice.hpp:0 lattice;");
  EXPECT_EQ(found_in("tests/CMakeLists.txt", "add_executable(lattice_test lattice_test.cpp)\n"),
            "tests/CMakeLists.txt:1 lattice;");
  EXPECT_EQ(found_in("scripts/a.sh", "lattice=3\n"), "scripts/a.sh:1 lattice;");
}

TEST_F(Planted, PrivateWordIsLeftInCommentsStringsAndDocuments) {
  EXPECT_EQ(found_in("src/a.cpp",
                     "// There is lattice.\n/* The lattice\n of the lattices. */\nauto text = \"no lattice\";\n"),
            "");
  EXPECT_EQ(found_in("docs/gpu.md", "Leave lattice for `lattice`.\n"), "");
  EXPECT_EQ(found_in("scripts/a.sh", "# lattice\necho there is lattice\n"), "");
}

TEST_F(Planted, WordsAreFoundAsWholeComponentsOnly) {
  EXPECT_EQ(found_in("src/a.cpp", "int zibbled, sublattice, kSublattice, superlattice_2;\n// zibbling\n"), "");
  EXPECT_EQ(found_in("src/a.cpp", "int guard; int zorp;\n"), "");
}

TEST_F(Planted, WordsAreLeftWhereRenamesAreTold) {
  for (const char* path : {"CHANGES.md", "docs/porting.md", "tests/packaging/house/retired_words.txt"})
    EXPECT_EQ(found_in(path, "zibble became oversubscribed\n"), "") << path;
}

TEST_F(Planted, WordIsLeftInTheFileThatMayReadIt) {
  EXPECT_EQ(found_in("src/core/tuning.cpp", "auto old = \"bytes_of_zibble\";\nint lattice;\n"),
            "src/core/tuning.cpp:2 lattice;");
}

TEST(Components, AreSplitAtUnderscoresCapitalsAndDigits) {
  using Parts = std::vector<std::string>;
  EXPECT_EQ(components_of("kLatticeBytes_2"), (Parts{"k", "lattice", "bytes", "2"}));
  EXPECT_EQ(components_of("intraNCCLRing"), (Parts{"intra", "nccl", "ring"}));
  EXPECT_EQ(components_of("__TOP-to_bottom"), (Parts{"top", "to", "bottom"}));
}

TEST(RetiredWords, AreListedByKind) {
  EXPECT_THROW(read_retired_words("old zibble\n"), std::runtime_error);
  EXPECT_THROW(read_retired_words("coined\n"), std::runtime_error);
  EXPECT_THROW(read_retired_words("coined zibble src/core/tuning.cpp\n"), std::runtime_error);
  EXPECT_THROW(read_retired_words("allowed zibble src/core/tuning.cpp\n"), std::runtime_error);
}

}  // namespace
}  // namespace collectives::house
