// Tests that no loop yields the core or spins by itself, outside the classes of src/base/ that wait.
#include <gtest/gtest.h>

#include <string>

#include "packaging/house/house.hpp"
#include "packaging/house/yields.hpp"

namespace collectives::house {
namespace {

std::size_t findings_in(const std::string& path, const std::string& text) { return raw_yields({{path, text}}).size(); }

TEST(Yields, AreBoundedInTheTree) { EXPECT_EQ(to_text(raw_yields(the_tree())), ""); }

TEST(Yields, AreFoundIfTheyArePlanted) {
  for (const char* line : {"  while (!done) ::sched_yield();\n", "while (!done) std::this_thread::yield();\n",
                           "for (;;) { _mm_pause(); }\n", "__builtin_ia32_pause();\n", "asm volatile(\"yield\");\n",
                           "::syscall(SYS_sched_yield);\n"})
    for (const char* path : {"src/execution/planted.cpp", "tools/planted.hpp", "bench/micro/planted.cpp",
                             "bench/compare/planted.cpp", "python_free_examples/planted.cpp", "src/base/planted.cpp"})
      EXPECT_EQ(findings_in(path, line), 1u) << path << ": " << line;
}

TEST(Yields, AreFoundInTheLineThatHasThem) {
  const auto findings = raw_yields({{"src/core/planted.cpp", "void wait() {\n  for (;;) sched_yield();\n}\n"}});
  EXPECT_EQ(to_text(findings),
            "src/core/planted.cpp:2: yields: use a class of src/base/wait.hpp or bounded_yield.hpp\n");
}

TEST(Yields, AreNoFaultInTheClassesThatWait) {
  EXPECT_EQ(findings_in("src/base/wait.cpp", "::sched_yield();\n"), 0u);
  EXPECT_EQ(findings_in("src/base/wait.hpp", "__builtin_ia32_pause();\n"), 0u);
  EXPECT_EQ(findings_in("src/base/bounded_yield.hpp", "::sched_yield();\n"), 0u);
  EXPECT_EQ(findings_in("bench/compare/sync_file.cpp", "__builtin_ia32_pause();\n"), 0u);
  EXPECT_EQ(findings_in("bench/compare/sync_file.cpp", "::sched_yield();\n"), 1u);
}

TEST(Yields, AreNoFaultInCommentsStringsAndTests) {
  EXPECT_EQ(findings_in("src/core/planted.cpp", "// while (!work.test()) sched_yield();\n"), 0u);
  EXPECT_EQ(findings_in("src/core/planted.cpp", "const char* text = \"sched_yield\";\n"), 0u);
  EXPECT_EQ(findings_in("src/core/planted.cpp", "void yield() noexcept;\nasm volatile(\"prefetchw %0\");\n"), 0u);
  EXPECT_EQ(findings_in("tests/base/planted.cpp", "::sched_yield();\n"), 0u);
  EXPECT_EQ(findings_in("docs/planted.md", "sched_yield();\n"), 0u);
}

}  // namespace
}  // namespace collectives::house
