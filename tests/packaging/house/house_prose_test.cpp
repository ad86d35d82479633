// Tests the prose of comments and documents: sentences must be short and open with their subject. A bar is the
// permitted share of sentences that break a rule. not_yet.txt may permit a greater share for a folder.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "packaging/house/house.hpp"
#include "packaging/house/not_yet.hpp"
#include "packaging/house/prose.hpp"

namespace collectives::house {
namespace {

struct Bars {
  const char* subject;
  std::vector<std::string_view> folders;
  Figures most;
};

// Bars per folder. The bar of skipped text, tables and indented lines, is its share in version 0.1.0, so that no long
// sentence can hide there.
const std::vector<Bars> kBars = {
    {"sources", {"include", "src", "tools", "tests", "bench", "python_free_examples"}, {0, 1, 5, 10, 4.7}},
    {"documents", {"", "docs"}, {0, 1, 12, 14, 23.9}}};

const std::vector<std::string_view> kMeasures = {"prose_openings", "prose_long_sentences", "prose_median_words",
                                                 "prose_skipped"};

std::vector<Excess> excesses_of(const char* subject, const Figures& now, const Figures& most) {
  std::vector<Excess> excesses;
  const auto add = [&](const char* measure, double value, double bar) {
    const double rounded = std::round(value * 10) / 10;
    if (rounded > bar) excesses.push_back({measure, subject, rounded, ""});
  };
  add("prose_openings", now.openings, most.openings);
  add("prose_long_sentences", now.long_sentences, most.long_sentences);
  add("prose_median_words", now.median_words, most.median_words);
  add("prose_skipped", now.skipped, most.skipped);
  return excesses;
}

TEST(ProseOfTheTree, IsWithinItsBars) {
  std::vector<Excess> now;
  for (const Bars& bars : kBars) {
    const Prose prose = prose_of(the_tree(), bars.folders);
    const Figures figures = figures_of(prose);
    std::printf(
        "%s: %zu sentences, %.1f %% open badly, %.1f %% have over 25 words, median %.1f, %.1f %% of words skipped\n",
        bars.subject, figures.sentences, figures.openings, figures.long_sentences, figures.median_words,
        figures.skipped);
    const auto excesses = excesses_of(bars.subject, figures, bars.most);
    now.insert(now.end(), excesses.begin(), excesses.end());
    const auto not_yet = read_not_yet(read_file(kHouse / "not_yet.txt"));
    EXPECT_EQ(differences(excesses, not_yet, {}), "") << "The sentences that read worst:\n"
                                                      << worst_sentences(prose, 20);
  }
  const auto not_yet = read_not_yet(read_file(kHouse / "not_yet.txt"));
  EXPECT_EQ(differences(now, not_yet, kMeasures), "") << "Lines of not_yet.txt that hold now:\n" << not_yet_lines(now);
}

std::string sentences_in(const char* path, const char* text) {
  Prose prose;
  read_prose({path, text}, prose);
  std::string found;
  for (const Sentence& sentence : prose.sentences) found += fmt::format("{}|{}\n", sentence.line, sentence.text);
  return found;
}

std::size_t skipped_in(const char* path, const char* text) {
  Prose prose;
  read_prose({path, text}, prose);
  return prose.skipped_words;
}

TEST(Prose, ReadsCommentsOfCode) {
  EXPECT_EQ(sentences_in("a.hpp", "// Sends one message\n// to a peer. Returns its tag.\n\n// Copies all the bytes.\n"),
            "1|Sends one message to a peer.\n1|Returns its tag.\n4|Copies all the bytes.\n");
  EXPECT_EQ(sentences_in("a.c", "/* Sends one message\n * to a peer. */\nint a; ///< number of bytes\n"),
            "1|Sends one message to a peer.\n3|number of bytes\n");
  EXPECT_EQ(sentences_in("a.cu", "auto a = \"http://no/comment at all\";\n// NOLINT of this line\n// -----\n"), "");
}

TEST(Prose, ReadsCommentsOfScripts) {
  EXPECT_EQ(sentences_in("a.sh", "#!/bin/sh of the system\n# Builds all of it.\necho this is it # not this one\n"),
            "2|Builds all of it.\n");
  EXPECT_EQ(sentences_in("tests/CMakeLists.txt", "  # Builds all of it.\n"), "1|Builds all of it.\n");
}

TEST(Prose, ReadsParagraphsAndItemsOfDocuments) {
  EXPECT_EQ(
      sentences_in("a.md", "# A heading of it\n\nOne two\nthree. Then `a b` is [a link](b.md).\n\n- Two words only\n"),
      "3|One two three.\n3|Then code is a link.\n6|Two words only\n");
  EXPECT_EQ(sentences_in("a.md", "```cpp\nint main of this;\n```\n| a | table | here |\n    code by four blanks\n"),
            "");
}

TEST(Prose, CountsTablesAndIndentedLinesAsSkipped) {
  EXPECT_EQ(skipped_in("a.md", "| two words |\n    and three more\n```\nfour\n```\n```cpp\nint none;\n```\n# none\n"),
            6u);
  EXPECT_EQ(skipped_in("a.hpp", "//   two words\n// | three\n// A sentence of five words.\n"), 3u);
}

TEST(Prose, EndsSentencesAtFullStops) {
  EXPECT_EQ(sentences_of("Sends to e.g. Rank 3 only. Then it waits? No.").size(), 2u);
  EXPECT_EQ(sentences_of("It sends 1.5 KiB of data. (More is rare here.)").size(), 2u);
  EXPECT_EQ(sentences_of("It is sent. and this goes on").size(), 1u);
}

TEST(Prose, CountsWordsAndOpenings) {
  EXPECT_EQ(count_words("a/b is 2.5 times what's in src/a.hpp - (all)"), 8u);
  EXPECT_TRUE((Sentence{"", 0, "Of these it takes one."}.opens_badly()));
  EXPECT_TRUE((Sentence{"", 0, "The same holds here."}.opens_badly()));
  EXPECT_FALSE((Sentence{"", 0, "Offers what it has."}.opens_badly()));
  EXPECT_FALSE((Sentence{"", 0, "The rank sends it."}.opens_badly()));
}

/// Returns the excesses over the bars that a project has whose only file is a header with ten short sentences and
/// `planted`.
std::string excesses_with(const std::string& planted) {
  std::string text;
  for (int i = 0; i < 10; ++i) text += "// A rank sends a message.\n\n";
  const Prose prose = prose_of({{"src/core/planted.hpp", text + planted}}, kBars[0].folders);
  return not_yet_lines(excesses_of("sources", figures_of(prose), kBars[0].most));
}

std::string comment_of(int words) {
  std::string text = "// Sends";
  for (int i = 1; i < words; ++i) text += " messages";
  return text + ".\n";
}

TEST(Prose, FindsPlantedFaults) {
  EXPECT_EQ(excesses_with(""), "");
  EXPECT_EQ(excesses_with("// What a rank sends.\n"), "prose_openings sources 9.1\n");
  EXPECT_EQ(excesses_with(comment_of(25)), "");
  EXPECT_EQ(excesses_with(comment_of(26)), "prose_long_sentences sources 9.1\n");
}

TEST(Prose, PrintsTheWorstSentencesFirst) {
  Prose prose;
  read_prose({"a.md", "A rank sends it.\n\nOf these a rank sends one.\n"}, prose);
  EXPECT_EQ(worst_sentences(prose, 1), "a.md:3: Of these a rank sends one.\n");
}

}  // namespace
}  // namespace collectives::house
