// Tests the layers of the project. Each folder is a layer, and layers.txt lists them from the lowest to the highest. A
// file of src/ or tools/ may include only files of its own layer and of lower ones.
#include <gtest/gtest.h>

#include "packaging/house/house.hpp"
#include "packaging/house/layers.hpp"

namespace collectives::house {
namespace {

const Layers& the_layers() {
  static const Layers layers(read_file(kHouse / "layers.txt"));
  return layers;
}

/// Returns the directory prefix of a layer in the repository: "src/core/" or "tools/".
std::string prefix_of(const Layer& layer) { return (layer.folder == "tools" ? "" : "src/") + layer.folder + "/"; }

SourceTree tree_with(const Layer& from, const Layer& to) {
  return {{prefix_of(from) + "planted.cpp", "#include <vector>\n#include \"" + to.folder + "/planted.hpp\"\n"}};
}

TEST(Layering, HoldsInTheTree) {
  EXPECT_EQ(to_text(order_faults(the_tree(), the_layers())), "");
  EXPECT_EQ(to_text(rule_faults(the_tree())), "");
}

TEST(Layering, IsThePictureThatDesignShows) {
  const SourceFile* const picture = find_file(the_tree(), "docs/layers.svg");
  const SourceFile* const design = find_file(the_tree(), "DESIGN.md");
  ASSERT_TRUE(picture != nullptr && design != nullptr);
  EXPECT_NE(design->text.find("](docs/layers.svg)"), std::string::npos);
  EXPECT_EQ(pictured_levels(picture->text, the_layers()), the_layers().from_the_top());
}

TEST(Layering, ReadsTheLevelsOfAPicture) {
  const Layers layers("# lowest first\nbase\nring, reduce_to_one\n");
  EXPECT_EQ(layers.from_the_top(), (std::vector<std::string>{"ring, reduce_to_one", "base"}));
  EXPECT_EQ(pictured_levels("<text>2</text><text x=\"1\">ring, reduce_to_one</text><text>base</text>", layers),
            layers.from_the_top());
}

TEST(Layering, RejectsAnUpwardIncludePlantedInAnyFolder) {
  for (const Layer& from : the_layers().all())
    for (const Layer& to : the_layers().all())
      EXPECT_EQ(order_faults(tree_with(from, to), the_layers()).size(), may_include(from, to) ? 0u : 1u)
          << from.folder << " includes " << to.folder;
}

TEST(Layering, OrdersFoldersByTheList) {
  const Layers layers("base\ncompression\nring, reduce_to_one\ncompression/top_k\n");
  const auto allowed = [&](std::string_view from, std::string_view to) {
    return may_include(*layers.of(from), *layers.of(to));
  };
  EXPECT_TRUE(allowed("ring/a.hpp", "base/b.hpp"));
  EXPECT_TRUE(allowed("ring/a.hpp", "ring/b.hpp"));
  EXPECT_FALSE(allowed("base/a.hpp", "ring/b.hpp"));
  EXPECT_FALSE(allowed("ring/a.hpp", "reduce_to_one/b.hpp"));
  EXPECT_TRUE(allowed("compression/top_k/a.hpp", "ring/b.hpp"));
  EXPECT_FALSE(allowed("compression/a.hpp", "compression/top_k/b.hpp"));
}

TEST(Layering, RejectsFilesAndIncludesOfNoLayer) {
  const auto faults = [](const char* path, const char* text) {
    return order_faults({{path, text}}, the_layers()).size();
  };
  EXPECT_EQ(faults("src/planted.cpp", ""), 1u);
  EXPECT_EQ(faults("src/unheard_of/planted.cpp", ""), 1u);
  EXPECT_EQ(faults("src/core/planted.cpp", "#include \"planted.hpp\"\n"), 1u);
  EXPECT_EQ(faults("src/core/planted.cpp", "  #  include \"../core/call.hpp\"  // here\n"), 1u);
  EXPECT_EQ(faults("src/CMakeLists.txt", ""), 0u);
  EXPECT_EQ(faults("src/core/planted.cpp", "#include <vector>\n#include \"collectives/plan.hpp\"\n"), 0u);
}

struct Plant {
  const char* path;
  const char* line;
};

class RuleOfLayering : public ::testing::TestWithParam<Plant> {};

TEST_P(RuleOfLayering, IsBrokenByAPlantedLine) {
  const auto faults = rule_faults({{GetParam().path, std::string(GetParam().line) + "\n"}});
  EXPECT_EQ(faults.size(), 1u) << to_text(faults);
}

INSTANTIATE_TEST_SUITE_P(Each, RuleOfLayering,
                         ::testing::Values(Plant{"include/collectives/one.hpp", "#include \"steps/step.hpp\""},
                                           Plant{"include/collectives/one.hpp", "#include <fmt/format.h>"},
                                           Plant{"include/collectives/three.h", "#include \"collectives/types.hpp\""},
                                           Plant{"src/ring/ring.hpp", "#include \"collectives/transport.hpp\""},
                                           Plant{"src/hierarchical/between.hpp", "#include \"base/log.hpp\""},
                                           Plant{"src/reduce_to_one/star.hpp", "#  include <fmt/format.h>"},
                                           Plant{"src/steps/direct_exchange.hpp", "#  include <fmt/format.h>"},
                                           Plant{"src/transport/tcp/tcp.cpp", "#include \"reduction/reduction.hpp\""},
                                           Plant{"src/ucx/transport.cpp", "#include \"steps/step.hpp\""},
                                           Plant{"src/ucx/transport.cpp", "#include \"communicator/settings.hpp\""},
                                           Plant{"src/mpi/transport.cpp", "#include \"collectives/communicator.hpp\""},
                                           Plant{"src/transport/tcp.cpp", "#include \"collectives/plan.hpp\""},
                                           Plant{"src/reduction/reduction.cpp", "#include \"base/environment.hpp\""},
                                           Plant{"src/compression/int8.cpp", "#include \"steps/step.hpp\""},
                                           Plant{"tools/simulation.cpp", "#include <chrono>"},
                                           Plant{"tools/simulation/player.cpp", "#include \"base/wait.hpp\""},
                                           Plant{"src/planning/plan.cpp", "#include <mpi.h>"},
                                           Plant{"tools/info.cpp", "#include \"collectives/mpi.hpp\""},
                                           Plant{"src/communicator/init.cpp", "#include <ucp/api/ucp.h>"},
                                           Plant{"tools/info.cpp", "#include \"ucx/transport.hpp\""},
                                           Plant{"src/execution/executor.cpp", "#include <nccl.h>"},
                                           Plant{"src/device/select.cu", "#include <cub/cub.cuh>"},
                                           Plant{"tools/info.cpp", "#include \"cuda/launch.cuh\""},
                                           Plant{"src/c_interface/calls.cpp", "#include \"mpi/bootstrap.hpp\""},
                                           Plant{"tools/info.cpp", "#include \"mpi_drop_in/mpi.hpp\""},
                                           Plant{"src/execution/wait.cpp", "auto* text = std::getenv(\"HOME\");"},
                                           Plant{"src/bootstrap/world.cpp",
                                                 "auto* text = std::getenv(\"COLLECTIVES_PORT\");"}));

TEST(RulesOfLayering, LeaveAloneWhatTheyAllow) {
  const SourceTree tree = {
      {"include/collectives/mpi.hpp", "#include <mpi.h>\n#include <vector>\n#include \"collectives/types.hpp\"\n"},
      {"src/mpi/bootstrap.cpp", "#include <mpi.h>\n#include \"collectives/mpi.hpp\"\n"},
      {"src/bootstrap/environment.cpp", "auto* text = std::getenv(\"RANK\");\n"},
      {"src/base/environment.cpp", "auto* text = std::getenv(\"COLLECTIVES_PORT\");\n"},
      {"src/hierarchical/between.hpp", "#include <vector>\n#include \"steps/step.hpp\"\n#include \"ring/ring.hpp\"\n"},
      {"src/cuda/fold.cu", "#include <cub/cub.cuh>\n#include \"cuda/launch.cuh\"\n"},
      {"src/ucx/transport.cpp", "#include <ucp/api/ucp.h>\n#include \"transport/network.hpp\"\n"}};
  EXPECT_EQ(to_text(rule_faults(tree)), "");
}

}  // namespace
}  // namespace collectives::house
