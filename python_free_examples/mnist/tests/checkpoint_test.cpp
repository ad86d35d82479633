// Tests of checkpoints, files with which training can be continued. A checkpoint must restore a run bit for bit.
// Loading a broken or foreign checkpoint must change nothing. A failed write must leave the old file.
#include "checkpoint.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zlib.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "dataset.hpp"
#include "files.hpp"

namespace mnist {
namespace {

using testing::Folder;
using testing::message_of;
using testing::read_file;
using testing::write_file;

constexpr RunIdentity kRun{1, 64, 1000, 0xabcd};

struct State {
  Model model;
  Optimizer optimizer;
  explicit State(std::string_view name = "softmax", OptimizerKind kind = OptimizerKind::adam, std::uint64_t seed = 1)
      : model(name, seed), optimizer(kind, model.parameter_count()) {}
  std::vector<float> parameters() const { return {model.parameters().begin(), model.parameters().end()}; }
  std::vector<float> state() const { return {optimizer.state().begin(), optimizer.state().end()}; }
};

/// Returns the state of a run after two updates.
State trained() {
  State state;
  for (std::size_t i = 0; i < state.model.parameter_count(); ++i)
    state.model.gradients()[i] = static_cast<float>(i % 17) - 8.0f;
  state.optimizer.apply(state.model.parameters(), state.model.gradients(), 0.01f);
  state.optimizer.apply(state.model.parameters(), state.model.gradients(), 0.02f);
  return state;
}

std::string packed() {
  const State state = trained();
  return pack_checkpoint(state.model, state.optimizer, kRun, {3, 7, 52, {1.25, 400}, 448});
}

/// Returns the error of loading `bytes` as a checkpoint. Checks that the error names the file, and that loading has not
/// changed `state`.
std::string refusal(const std::string& bytes, State state = State("softmax", OptimizerKind::adam, 99),
                    RunIdentity run = kRun) {
  const std::vector<float> parameters = state.parameters(), optimizer_state = state.state();
  const std::string text =
      message_of<FileError>([&] { unpack_checkpoint(bytes, "run.ckpt", run, state.model, state.optimizer); });
  EXPECT_TRUE(text.starts_with("run.ckpt: ")) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(state.parameters(), parameters);
  EXPECT_EQ(state.state(), optimizer_state);
  EXPECT_EQ(state.optimizer.updates(), 0u);
  return text.substr(std::min<std::size_t>(text.size(), 10));
}

TEST(Checkpoint, ComesBackBitForBit) {
  const State before = trained();
  State after("softmax", OptimizerKind::adam, 99);
  const Position position = unpack_checkpoint(packed(), "run.ckpt", kRun, after.model, after.optimizer);
  EXPECT_EQ(after.parameters(), before.parameters());
  EXPECT_EQ(after.state(), before.state());
  EXPECT_EQ(after.optimizer.updates(), 2u);
  EXPECT_EQ(position.epoch, 3u);
  EXPECT_EQ(position.step, 7u);
  EXPECT_EQ(position.total_steps, 52u);
  EXPECT_EQ(position.score.loss, 1.25);
  EXPECT_EQ(position.score.correct, 400u);
  EXPECT_EQ(position.images, 448u);
}

TEST(Checkpoint, EveryTruncationIsRefused) {
  const std::string whole = packed();
  EXPECT_EQ(refusal(""), "not a checkpoint of mnist_trainer");
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{8}, std::size_t{23}, std::size_t{24}, std::size_t{100},
                                  whole.size() / 2, whole.size() - 1})
    EXPECT_TRUE(refusal(whole.substr(0, bytes)).starts_with("truncated")) << bytes;
}

TEST(Checkpoint, AnnouncedLengthsDoNotWrap) {
  std::string huge = packed();
  std::fill_n(huge.begin() + 16, 8, '\xff');
  const std::string text = refusal(huge);
  EXPECT_TRUE(text.starts_with("truncated")) << text;
  EXPECT_TRUE(text.ends_with("and 18446744073709551615 of numbers")) << text;
}

TEST(Checkpoint, BytesAfterTheEndAreRefused) { EXPECT_EQ(refusal(packed() + "x"), "1 bytes after the end"); }

TEST(Checkpoint, AFlippedBitAnywhereIsRefused) {
  const std::string whole = packed();
  for (std::size_t at = 0; at < whole.size(); at += at < 600 ? 1 : 997) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    EXPECT_FALSE(refusal(damaged).empty()) << at;
  }
}

TEST(Checkpoint, AnotherFileIsNotACheckpoint) {
  EXPECT_EQ(refusal("root:x:0:0:root:/root:/bin/bash\n"), "not a checkpoint of mnist_trainer");
}

TEST(Checkpoint, AnotherVersionIsRefused) {
  std::string newer = packed();
  newer[8] = 3;
  EXPECT_EQ(refusal(newer), "format version 3, this program reads 1 and 2");
}

TEST(Checkpoint, AnotherModelIsRefused) {
  EXPECT_EQ(refusal(packed(), State("mlp")), "of another run: model softmax, this run has mlp");
}

TEST(Checkpoint, AnotherOptimizerIsRefused) {
  EXPECT_EQ(refusal(packed(), State("softmax", OptimizerKind::sgd)),
            "of another run: optimizer adam, this run has sgd");
}

TEST(Checkpoint, AnotherSeedBatchOrDataIsRefused) {
  EXPECT_EQ(refusal(packed(), State("softmax"), {2, 64, 1000, 0xabcd}), "of another run: seed 1, this run has 2");
  EXPECT_EQ(refusal(packed(), State("softmax"), {1, 32, 1000, 0xabcd}), "of another run: batch 64, this run has 32");
  EXPECT_EQ(refusal(packed(), State("softmax"), {1, 64, 999, 0xabcd}),
            "of another run: training images 1000, this run has 999");
  EXPECT_TRUE(refusal(packed(), State("softmax"), {1, 64, 1000, 1}).starts_with("of another run: data checksum"));
  EXPECT_EQ(refusal(packed(), State("softmax"), {1, 64, 1000, 0xabcd, 4}),
            "of another run: batches of a step 1, this run has 4");
}

TEST(Checkpoint, WhereNoNumberOfBatchesIsWrittenItIsOne) {
  const std::string field = "\"accumulate\":1,";
  std::string older = packed();
  older.erase(older.find(field), field.size());
  const auto put = [&](std::size_t at, std::uint32_t word) { std::memcpy(older.data() + at, &word, sizeof word); };
  std::uint32_t length = 0;
  std::memcpy(&length, older.data() + 12, sizeof length);
  put(12, length - static_cast<std::uint32_t>(field.size()));
  const std::size_t end = older.size() - sizeof(std::uint32_t);
  put(end, static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(older.data()), end)));
  State state;
  EXPECT_EQ(unpack_checkpoint(older, "run.ckpt", kRun, state.model, state.optimizer).total_steps, 52u);
}

const Compressor::States kStates = {
    std::vector<std::byte>(5, std::byte{1}), {}, std::vector<std::byte>(70, std::byte{3})};

RunIdentity compressed(const std::string& text) {
  RunIdentity run = kRun;
  run.compression = text;
  run.keeps_residuals = true;
  return run;
}

std::string packed_with_states() {
  const State state = trained();
  return pack_checkpoint(state.model, state.optimizer, compressed("top_k:0.01"), {3, 7, 52, {1.25, 400}, 448}, kStates);
}

TEST(Checkpoint, TheStatesOfACompressorComeBack) {
  State state;
  Compressor::States taken;
  const Position position =
      unpack_checkpoint(packed_with_states(), "run.ckpt", compressed("top_k:0.01"), state.model, state.optimizer,
                        [&](const Compressor::States& states) { taken = states; });
  EXPECT_EQ(taken, kStates);
  EXPECT_EQ(state.parameters(), trained().parameters());
  EXPECT_EQ(position.total_steps, 52u);
}

TEST(Checkpoint, AStateThatNobodyCanTakeChangesNothing) {
  State state("softmax", OptimizerKind::adam, 99);
  const std::vector<float> parameters = state.parameters();
  const std::string text = message_of<FileError>([&] {
    unpack_checkpoint(packed_with_states(), "run.ckpt", compressed("top_k:0.01"), state.model, state.optimizer,
                      [](const Compressor::States&) { throw std::invalid_argument("it is none"); });
  });
  EXPECT_EQ(text, "run.ckpt: the state of its compressor: it is none");
  EXPECT_EQ(state.parameters(), parameters);
}

TEST(Checkpoint, AnotherCompressionIsRefusedButResidualsMayBegin) {
  EXPECT_EQ(refusal(packed_with_states()), "of another run: compression top_k:0.01, this run has none");
  EXPECT_EQ(refusal(packed_with_states(), State("softmax", OptimizerKind::adam, 99), compressed("top_k:0.02")),
            "of another run: compression top_k:0.01, this run has top_k:0.02");
  RunIdentity bf16 = kRun;
  bf16.compression = "bf16";
  EXPECT_EQ(refusal(packed(), State("softmax", OptimizerKind::adam, 99), bf16),
            "of another run: compression none, this run has bf16");
  State state;
  EXPECT_EQ(unpack_checkpoint(packed(), "run.ckpt", compressed("top_k:0.01"), state.model, state.optimizer,
                              [](const Compressor::States&) { FAIL() << "there are no states"; })
                .total_steps,
            52u);
}

TEST(Checkpoint, TruncatedOrFlippedStatesAreRefused) {
  const std::string whole = packed_with_states();
  const auto refused = [&](const std::string& bytes) {
    return !refusal(bytes, State("softmax", OptimizerKind::adam, 99), compressed("top_k:0.01")).empty();
  };
  for (std::size_t back = 1; back < 90; ++back) {
    EXPECT_TRUE(refused(whole.substr(0, whole.size() - back))) << back;
    std::string damaged = whole;
    damaged[whole.size() - back] = static_cast<char>(damaged[whole.size() - back] ^ 0x10);
    EXPECT_TRUE(refused(damaged)) << back;
  }
}

TEST(Checkpoint, TheFileIsReplacedWhole) {
  const Folder folder;
  write_file(folder / "run.ckpt", "old");
  write_atomically(folder / "run.ckpt", "new and longer");
  EXPECT_EQ(read_file(folder / "run.ckpt"), "new and longer");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Checkpoint, AFailedWriteLeavesTheOldOne) {
  const Folder folder;
  write_file(folder / "run.ckpt", "old");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit two_bytes{2, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &two_bytes), 0);
  const std::string text = message_of<FileError>([&] { write_atomically(folder / "run.ckpt", "new"); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(text.starts_with((folder / "run.ckpt").string())) << text;
  EXPECT_EQ(read_file(folder / "run.ckpt"), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Checkpoint, IsWrittenThroughNoPlantedLink) {
  const Folder folder;
  write_file(folder / "victim", "secret");
  std::filesystem::create_symlink(folder / "victim", folder / "run.ckpt");
  std::filesystem::create_symlink(folder / "victim", folder / "run.ckpt.partial");
  write_atomically(folder / "run.ckpt", "new");
  EXPECT_EQ(read_file(folder / "victim"), "secret");
  EXPECT_EQ(read_file(folder / "run.ckpt"), "new");
}

TEST(Checkpoint, AFailedRenameLeavesNoPartialFile) {
  const Folder folder;
  std::filesystem::create_directories(folder / "run.ckpt" / "in the way");
  EXPECT_THROW(write_atomically(folder / "run.ckpt", "new"), FileError);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Checkpoint, AFileThatIsNotThereIsNamed) {
  EXPECT_EQ(message_of<FileError>([] { read_whole("/nowhere/run.ckpt"); }),
            "/nowhere/run.ckpt: No such file or directory");
}

}  // namespace
}  // namespace mnist
