// Tests that functions, classes, files and documents are not too large. A bar is the maximum size. not_yet.txt may
// permit a greater one for a function, class or file that is not small enough yet.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "packaging/house/house.hpp"
#include "packaging/house/sizes.hpp"

namespace collectives::house {
namespace {

std::string repeated(const std::string& line, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += line;
  return text;
}

/// Writes `text` to src/planted.hpp below an empty folder, and returns the tags of that folder.
std::vector<Tag> tags_of(const std::string& text) {
  const auto root = std::filesystem::path(::testing::TempDir()) / "house_sizes_test";
  std::filesystem::create_directories(root / "src");
  std::ofstream(root / "src/planted.hpp") << text;
  return run_ctags(CTAGS, root, "src");
}

std::string function_of(const std::string& name, int lines) {
  return fmt::format("int {}() {{\n{}  return 0;\n}}\n", name, repeated("  step();\n", lines - 3));
}

std::string class_of(const std::string& name, int functions, int members) {
  std::string text = fmt::format("struct {} {{\n", name);
  for (int i = 0; i < functions; ++i)
    text += fmt::format("  void function_{}({}) const;\n", i, i % 2 == 0 ? "" : "int");
  for (int i = 0; i < members; ++i) text += fmt::format("  int member_{} = 0;\n", i);
  return text + "};\n";
}

std::string excesses_in(const std::string& text) {
  const auto tags = tags_of(text);
  auto excesses = long_functions(tags);
  const auto classes = wide_classes(tags, {{"src/planted.hpp", text}});
  excesses.insert(excesses.end(), classes.begin(), classes.end());
  return not_yet_lines(excesses);
}

TEST(Sizes, HoldInTheTree) {
  const auto tags = run_ctags(CTAGS, kRoot, "include src tools");
  auto now = long_functions(tags);
  for (const auto& more : {wide_classes(tags, the_tree()), long_files(the_tree())})
    now.insert(now.end(), more.begin(), more.end());
  const auto not_yet = read_not_yet(read_file(kHouse / "not_yet.txt"));
  const std::string lines = not_yet_lines(now);
  EXPECT_EQ(differences(now, not_yet, kSizeMeasures), "") << "Lines of not_yet.txt that hold now:\n" << lines;
  std::printf("Above their bars today:\n%s", lines.c_str());
}

TEST(Sizes, FindALongFunction) {
  EXPECT_EQ(excesses_in(function_of("fits", 60)), "");
  for (const char* scope : {"namespace collectives {\n", "namespace {\n", "extern \"C\" {\n"})
    EXPECT_EQ(excesses_in(scope + function_of("planted", 61) + "}\n"), "function_lines planted 61\n");
}

TEST(Sizes, FindAWideClass) {
  EXPECT_EQ(excesses_in(class_of("Fits", 30, 50)), "");
  EXPECT_EQ(excesses_in(class_of("Planted", 31, 0)), "class_functions Planted 31\n");
  EXPECT_EQ(excesses_in("/// All calls.\n" + class_of("Planted", 31, 0)), "class_functions Planted 31\n");
  EXPECT_EQ(excesses_in("/// More than 30 functions: one a call.\n" + class_of("Planted", 31, 0)), "");
}

TEST(Sizes, AllowFiveWideClasses) {
  std::string text;
  const auto add = [&](const std::string& name) {
    text += "// More than 30 functions: a test.\n" + class_of(name, 31, 0);
  };
  for (const char* name : {"One", "Two", "Three", "Four", "Five"}) add(name);
  EXPECT_EQ(excesses_in(text), "");
  add("Six");
  EXPECT_EQ(excesses_in(text), "wide_classes all 6\n");
}

TEST(Sizes, ExcuseNoNamedClass) {
  const std::string head = "// More than 30 functions: a test.\n";
  EXPECT_EQ(excesses_in(head + class_of("Executor", 31, 0)), "class_functions Executor 31\n");
  EXPECT_EQ(excesses_in("namespace Communicator {\n" + class_of("Impl", 25, 12) + "}\n"), "");
  EXPECT_EQ(excesses_in("namespace Communicator {\n" + class_of("Impl", 26, 13) + "}\n"),
            "class_functions Communicator::Impl 26\nclass_members Communicator::Impl 13\n");
}

TEST(Sizes, FindLongFiles) {
  const auto excesses = [](const char* path, int lines) {
    return not_yet_lines(long_files({{path, repeated("three words here\n", lines)}}));
  };
  EXPECT_EQ(excesses("src/core/planted.cpp", 500), "");
  EXPECT_EQ(excesses("src/core/planted.cpp", 501), "cpp_lines src/core/planted.cpp 501\n");
  EXPECT_EQ(excesses("tools/planted.cpp", 501), "cpp_lines tools/planted.cpp 501\n");
  EXPECT_EQ(excesses("README.md", 150), "");
  EXPECT_EQ(excesses("README.md", 151), "document_lines README.md 151\n");
  EXPECT_EQ(excesses("DESIGN.md", 666), "");
  EXPECT_EQ(excesses("DESIGN.md", 667), "document_words DESIGN.md 2001\n");
  EXPECT_EQ(excesses("tests/core/call_test.cpp", 700), "");
  EXPECT_EQ(excesses("tests/core/call_test.cpp", 701), "test_lines tests/core/call_test.cpp 701\n");
  EXPECT_EQ(excesses("tests/core/CMakeLists.txt", 61), "cmake_lines tests/core/CMakeLists.txt 61\n");
  EXPECT_EQ(excesses("bench/results/hosts.txt", 1501), "results_lines bench/results 1501\n");
}

TEST(NotYet, LetsValuesFallOnly) {
  const auto not_yet = read_not_yet("# comment\nfunction_lines simulate 90  # soon\n");
  const auto differ = [&](const std::vector<Excess>& now) { return differences(now, not_yet, {"function_lines"}); };
  EXPECT_EQ(differ({{"function_lines", "simulate", 90, ""}}), "");
  EXPECT_EQ(differ({{"function_lines", "simulate", 70, ""}}), "");
  EXPECT_NE(differ({{"function_lines", "simulate", 91, ""}}).find("has grown"), std::string::npos);
  EXPECT_NE(differ({}).find("strike it out"), std::string::npos);
  EXPECT_NE(differ({{"function_lines", "simulate", 90, ""}, {"function_lines", "run", 61, ""}}).find("above its bar"),
            std::string::npos);
  EXPECT_EQ(differences({}, not_yet, {"cpp_lines"}), "");
  EXPECT_THROW(read_not_yet("function_lines simulate\n"), std::runtime_error);
  EXPECT_THROW(read_not_yet("function_lines simulate 90 91\n"), std::runtime_error);
}

}  // namespace
}  // namespace collectives::house
