// Tests of training with compressed gradients. They check that the model learns, and that all ranks keep equal copies
// of it. An interrupted and continued run gives the same bits. Tensors that are not compressed are not changed.
#include "compression.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "buckets.hpp"
#include "files.hpp"
#include "replicas.hpp"
#include "support/hosts.hpp"
#include "synthetic.hpp"
#include "trainer.hpp"

namespace mnist {
namespace {

using collectives::Communicator;
using collectives::testing::run_hosts;
using testing::Folder;
using testing::message_of;
using testing::read_file;

const Data& digits() {
  static const Data data = draw_digits(403, 61, 1);
  return data;
}

struct RunSetup {
  std::string_view model = "softmax";
  OptimizerKind optimizer = OptimizerKind::sgd;
  TrainerOptions options = {};
  std::vector<int> hosts = {0, 0};  // number of the host of each rank
  std::filesystem::path resume = {}, json = {};
};

struct Result {
  std::vector<float> parameters;
  std::string plan;
  bool kept = false;  // whether the checkpoint contained states of the compression
};

std::vector<Result> train_all(const RunSetup& setup) {
  std::vector<Result> results(setup.hosts.size());
  run_hosts(setup.hosts, [&](Communicator& comm) {
    Result& result = results[static_cast<std::size_t>(comm.rank())];
    Model model(setup.model, setup.options.seed);
    Optimizer optimizer(setup.optimizer, model.parameter_count());
    Report report({.json = comm.rank() == 0 ? setup.json : ""}, true);
    Trainer trainer(comm, digits(), setup.options, model, optimizer, report);
    if (!setup.resume.empty()) result.kept = trainer.resume(setup.resume);
    result.plan = trainer.plan_of_compression();
    trainer.run();
    result.parameters.assign(model.parameters().begin(), model.parameters().end());
  });
  for (const Result& result : results) EXPECT_EQ(result.parameters, results[0].parameters);
  return results;
}

Result train(const RunSetup& setup) { return train_all(setup).front(); }

std::vector<nlohmann::json> epochs_of(const std::filesystem::path& file) {
  std::vector<nlohmann::json> epochs;
  std::istringstream text(read_file(file));
  for (std::string line; std::getline(text, line);)
    if (const auto json = collectives::parse_json(line); json.at("event") == "epoch") epochs.push_back(json);
  return epochs;
}

Compression compression_of(const char* choice, bool force = true) {
  Compression compression;
  compression.choose(choice);
  compression.force = force;
  return compression;
}

TEST(Compression, ChoicesAreReadAndWritten) {
  const std::pair<const char*, const char*> good[] = {{"none", "none"},
                                                      {"fp16", "fp16"},
                                                      {"top_k", "top_k:0.01"},
                                                      {"top_k:0.001", "top_k:0.001"},
                                                      {"top_k:0.1%", "top_k:0.001"},
                                                      {"top_k:100%", "top_k:1"}};
  for (const auto& [text, choice] : good) EXPECT_EQ(compression_of(text).choice(), choice);
  for (const char* text : {"", "f16", "top-k", "bf16:1%", "none:", "top_k:", "top_k:0", "top_k:-1", "top_k:101%",
                           "top_k:1%%", "top_k:nan", "top_k:x"})
    EXPECT_NE(message_of<std::invalid_argument>([&] { compression_of(text); }).find("expected"), std::string::npos)
        << text;
}

TEST(Compression, TheTextTellsEverythingThatChangesBits) {
  Compression compression = compression_of("top_k", false);
  std::vector<std::string> texts = {compression.text()};
  const auto tell = [&] { texts.push_back(compression.text()); };
  compression.top_k.momentum = 0.9f, tell();
  compression.top_k.warm_up_calls = 5, tell();
  compression.top_k.warm_up_density = 0.5, tell();
  compression.top_k.clip = 2, tell();
  compression.top_k.values = collectives::DataType::bf16, tell();
  compression.top_k.non_finite = collectives::NonFinite::skip, tell();
  compression.by_layer = true, tell();
  compression.force = true, tell();
  EXPECT_EQ(texts[0], "top_k:0.01");
  EXPECT_EQ(
      texts.back(),
      "top_k:0.01, momentum correction 0.9, 5 warm-up steps from 0.5, clipped to 2, values bf16, non-finite skip, "
      "by layer, forced");
  std::ranges::sort(texts);
  EXPECT_EQ(std::ranges::adjacent_find(texts), texts.end());
}

TEST(Compression, BucketsByLayerAreWholeLayers) {
  EXPECT_EQ(cut_by_layer({0, 10, 30}, 100), (std::vector<Bucket>{{30, 100}, {10, 30}, {0, 10}}));
}

TEST(CompressedTraining, EveryKindLearnsAndReplicasAreEqual) {
  const Folder folder;
  for (const char* choice : {"bf16", "fp16", "int8", "top_k:1%", "top_k:10%"})
    for (const std::vector<int>& hosts : {std::vector{0, 0}, {0, 1}, {0, 0, 1, 1}}) {
      RunSetup setup{.model = "softmax", .hosts = hosts, .json = folder / "run.json"};
      setup.options.epochs = 8;
      setup.options.batch = 20;
      setup.options.compression = compression_of(choice);
      train(setup);
      const std::vector<nlohmann::json> epochs = epochs_of(folder / "run.json");
      EXPECT_LT(epochs.back().at("loss"), 0.5 * epochs[0].at("loss").get<double>()) << choice;
      EXPECT_EQ(epochs[0].at("compression").at("compressed_share"), 1.0) << choice;
      EXPECT_FALSE(epochs[0].at("compression").contains("reason")) << choice;
    }
}

TEST(CompressedTraining, MomentumCorrectionWarmUpAndLayersLearn) {
  const Folder folder;
  RunSetup setup{.model = "cnn", .hosts = {0, 1}, .json = folder / "run.json"};
  setup.options.epochs = 6;
  setup.options.batch = 20;
  setup.options.schedule = Schedule(0.02f);
  setup.options.compression = compression_of("top_k:1%");
  setup.options.compression.by_layer = true;
  setup.options.compression.top_k.momentum = 0.9f;
  setup.options.compression.top_k.warm_up_calls = 30;
  const Result result = train(setup);
  EXPECT_NE(result.plan.find("gradients 320..346496 (the largest bucket): top "), std::string::npos) << result.plan;
  const std::vector<nlohmann::json> epochs = epochs_of(folder / "run.json");
  EXPECT_LT(epochs.back().at("loss"), 0.5 * epochs[0].at("loss").get<double>());
  const nlohmann::json &first = epochs[0].at("compression"), &last = epochs.back().at("compression");
  EXPECT_EQ(last.at("chosen_per_step"), 4 + 3462 + 7);  // 1 % of the elements of each layer, rounded up
  EXPECT_GT(first.at("chosen_per_step"), last.at("chosen_per_step"));
  EXPECT_GE(last.at("union_per_step"), last.at("chosen_per_step"));
  EXPECT_EQ(last.at("gradient_bytes_per_step"), 347146 * 4);
  EXPECT_EQ(last.at("raw_bytes_per_step"), 347146 * 4);
  EXPECT_LT(last.at("sent_bytes_per_step"), 0.02 * last.at("raw_bytes_per_step").get<double>());
  EXPECT_GT(last.at("coding_ms_per_step"), 0.0);
  EXPECT_GT(last.at("residual_norm"), 0.0);
  EXPECT_GT(last.at("relative_error"), 0.0);
  EXPECT_LT(last.at("relative_error"), 1.0);
}

TEST(CompressedTraining, OverlapChangesNoBit) {
  RunSetup setup{.model = "cnn"};
  setup.options.max_steps = 4;
  setup.options.bucket_bytes = 100'000;
  for (const char* choice : {"int8", "top_k"}) {
    setup.options.compression = compression_of(choice);
    setup.options.overlap = true;
    const Result on = train(setup);
    setup.options.overlap = false;
    EXPECT_EQ(on.parameters, train(setup).parameters) << choice;
  }
}

TEST(CompressedTraining, OnOneHostTheLibrarySendsEverythingAndTheRunIsAPlainOne) {
  const Folder folder;
  RunSetup setup{.model = "mlp", .optimizer = OptimizerKind::adam, .json = folder / "run.json"};
  setup.options.epochs = 2;
  const Result plain = train(setup);
  EXPECT_EQ(plain.plan, "");
  EXPECT_FALSE(epochs_of(folder / "run.json")[0].contains("compression"));
  setup.options.compression = compression_of("top_k:1%", false);
  const Result compressed = train(setup);
  EXPECT_EQ(compressed.parameters, plain.parameters);
  const nlohmann::json report = epochs_of(folder / "run.json")[0].at("compression");
  EXPECT_EQ(report.at("compressed_share"), 0.0);
  EXPECT_NE(report.at("reason").get<std::string>().find("share memory"), std::string::npos);
  EXPECT_EQ(report.at("residual_norm"), 0.0);
}

TEST(CompressedTraining, AContinuedRunHasTheBitsOfAnUnbrokenOne) {
  for (const std::vector<int>& hosts : {std::vector{0}, {0, 0}, {0, 0, 1, 1}})
    for (const std::size_t stop : {3u, 9u, 21u}) {  // within the warm-up, at an epoch's end, and after it
      const Folder folder;
      RunSetup setup{.hosts = hosts};
      setup.options.batch = 50;  // 9 steps an epoch
      setup.options.epochs = 3;
      setup.options.bucket_bytes = 10'000;
      setup.options.compression = compression_of("top_k:1%");
      setup.options.compression.top_k.momentum = 0.9f;
      setup.options.compression.top_k.warm_up_calls = 6;
      const Result unbroken = train(setup);

      setup.options.checkpoint = folder / "run.ckpt";
      setup.options.max_steps = stop;
      train(setup);
      setup.options.max_steps = SIZE_MAX;
      setup.resume = folder / "run.ckpt";
      const Result continued = train(setup);
      EXPECT_TRUE(continued.kept);
      EXPECT_EQ(continued.parameters, unbroken.parameters) << hosts.size() << " ranks, " << stop;
    }
}

TEST(CompressedTraining, MoreOrFewerRanksContinueARun) {
  const Folder folder;
  RunSetup setup{.hosts = {0, 0, 0}};
  setup.options.batch = 20;
  setup.options.epochs = 4;
  setup.options.compression = compression_of("top_k:1%");
  setup.options.checkpoint = folder / "run.ckpt";
  setup.options.max_steps = 30;
  train(setup);
  setup.resume = folder / "run.ckpt";
  setup.options.checkpoint = "";
  setup.options.max_steps = SIZE_MAX;
  setup.json = folder / "run.json";
  for (const std::vector<int>& hosts : {std::vector{0}, {0, 0}, {0, 1, 1, 0}}) {
    setup.hosts = hosts;
    EXPECT_TRUE(train(setup).kept);
    EXPECT_LT(epochs_of(setup.json).back().at("loss"), 1.0) << hosts.size();
  }
}

TEST(CompressedTraining, ResidualsMayBeginInAContinuation) {
  const Folder folder;
  RunSetup setup;
  setup.options.epochs = 2;
  setup.options.checkpoint = folder / "run.ckpt";
  setup.options.max_steps = 3;
  train(setup);
  setup.options.max_steps = SIZE_MAX;
  setup.options.compression = compression_of("top_k:1%");
  setup.resume = folder / "run.ckpt";
  EXPECT_FALSE(train(setup).kept);
}

TEST(CompressedTraining, ResidualsOfOtherBucketsOrDamagedOnesAreRefused) {
  run_hosts({0, 0}, [](Communicator& comm) {
    const std::vector<Bucket> halves = {{50, 100}, {0, 50}}, whole = {{0, 100}};
    Compressor before(comm, compression_of("top_k:10%"), halves), after(comm, compression_of("top_k:10%"), whole),
        same(comm, compression_of("top_k:10%"), halves);
    std::vector<float> gradient(50, 1.0f);
    comm.all_reduce(gradient, collectives::ReduceOp::sum, before.options(0));
    comm.all_reduce(gradient, collectives::ReduceOp::sum, before.options(1));
    Compressor::States states = before.save();
    EXPECT_EQ(states.size(), comm.rank() == 0 ? 2u : 0u);
    if (comm.rank() != 0) return;
    EXPECT_EQ(message_of<std::invalid_argument>([&] { after.load(states); }),
              "it keeps something of gradients 0..50, which is no bucket of this run");
    same.load(states);
    states[1].resize(states[1].size() - 1);
    const std::string text = message_of<std::invalid_argument>([&] { same.load(states); });
    EXPECT_NE(text.find("top-k: "), std::string::npos) << text;
  });
}

}  // namespace
}  // namespace mnist
