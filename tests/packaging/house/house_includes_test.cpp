// Tests that each source of the library includes the standard headers that it uses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include "packaging/house/house.hpp"
#include "packaging/house/includes.hpp"

namespace collectives::house {
namespace {

TEST(Includes, AreCompleteInTheTree) { EXPECT_EQ(to_text(missing_includes(the_tree())), ""); }

TEST(Includes, CoverEveryPrecompiledHeader) {
  const SourceFile* const list = find_file(the_tree(), "src/CMakeLists.txt");
  ASSERT_NE(list, nullptr);
  const std::size_t begin = list->text.find("collectives_precompile("), end = list->text.find(')', begin);
  ASSERT_NE(begin, std::string::npos);
  const std::string precompiled = list->text.substr(begin, end - begin);
  std::ptrdiff_t count = 0;
  for (const std::string& header : covered_headers())
    count += precompiled.find('<' + header + '>') != std::string::npos;
  EXPECT_EQ(count, std::ranges::count(precompiled, '<'));
}

TEST(Includes, AreReportedWithTheFirstUse) {
  EXPECT_EQ(to_text(missing_includes({{"src/core/planted.cpp", "#include <string>\n\nstd::vector<int> all;\n"}})),
            "src/core/planted.cpp:3: needs #include <vector>\n");
  EXPECT_EQ(to_text(missing_includes({{"include/collectives/planted.hpp", "auto text = fmt::format(\"\");\n"}})),
            "include/collectives/planted.hpp:1: needs #include <fmt/format.h>\n");
}

TEST(Includes, MayComeFromAHeaderOfTheProject) {
  const SourceFile inner = {"src/core/inner.hpp", "#pragma once\n#include <vector>\nstd::vector<int> inner();\n"};
  const SourceFile outer = {"include/collectives/outer.hpp", "#include \"core/inner.hpp\"\n"};
  const SourceFile user = {"src/core/user.cpp", "#include \"collectives/outer.hpp\"\nstd::vector<int> all;\n"};
  EXPECT_EQ(to_text(missing_includes({inner, outer, user})), "");
  EXPECT_EQ(missing_includes({inner, user}).size(), 1u);
}

TEST(Includes, AreNotNeededByCommentsStringsAndTests) {
  EXPECT_EQ(to_text(missing_includes({{"src/core/planted.cpp", "// std::vector\nauto* text = \"std::vector\";\n"},
                                      {"tests/core/planted.cpp", "std::vector<int> all;\n"}})),
            "");
}

}  // namespace
}  // namespace collectives::house
