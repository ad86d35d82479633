// Tests of the program mnist_trainer. They run it alone and under collectives_run, which starts several ranks, with
// valid and with wrong arguments. If the variable MNIST_DIR is set, the tests also train on the real digits.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "files.hpp"

// Paths of the programs, in a file that CMake writes.
extern const char kCollectivesRun[], kMnistTrainer[];

namespace mnist {
namespace {

using testing::Folder;
using testing::image_file;
using testing::label_file;
using testing::read_file;
using testing::write_file;

/// Value of MNIST_DIR at the start of the tests. The tests then unset the variable, so that most of them use synthetic
/// digits.
const std::string real_digits = std::getenv("MNIST_DIR") ? std::getenv("MNIST_DIR") : "";

struct Outcome {
  int code = -1;
  std::string output;  // text that the program wrote to stdout and stderr
};

Outcome run(const std::string& command) {
  Outcome outcome;
  std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> buffer;
  while (const std::size_t bytes = std::fread(buffer.data(), 1, buffer.size(), pipe))
    outcome.output.append(buffer.data(), bytes);
  const int status = ::pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

/// Runs the trainer with `ranks` ranks, or without a launcher if `ranks` is 0. By default, it trains on a few synthetic
/// digits.
Outcome trainer(int ranks, const std::string& arguments) {
  const std::string launcher = ranks == 0 ? "" : std::string(kCollectivesRun) + " -n " + std::to_string(ranks) + " ";
  return run(launcher + kMnistTrainer + " --synthetic-train 300 --synthetic-test 100 " + arguments);
}

/// Returns the lines about errors in the output that come from the trainer itself, not from the launcher.
std::vector<std::string> complaints(const Outcome& outcome) {
  std::vector<std::string> found;
  std::istringstream lines(outcome.output);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("mnist_trainer: ")) found.push_back(line);
  return found;
}

class Program : public ::testing::Test {
 protected:
  void SetUp() override { ::unsetenv("MNIST_DIR"); }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  std::vector<nlohmann::json> json_lines(const std::string& name) const {
    std::vector<nlohmann::json> lines;
    std::istringstream text(read_file(folder_ / name));
    for (std::string line; std::getline(text, line);) lines.push_back(collectives::parse_json(line));
    return lines;
  }
  /// Runs two ranks. The arguments and the variables may contain $RANK, which a shell replaces by the number of the
  /// rank.
  Outcome by_rank(const std::string& arguments, const std::string& variables = "") const {
    const std::string script = file("by_rank");
    write_file(script, "#!/bin/sh\n" + variables + " exec " + kMnistTrainer + " " + arguments + "\n");
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    return run(std::string(kCollectivesRun) + " -n 2 " + script);
  }
  Folder folder_;
};

TEST_F(Program, AloneItTrainsOnDigitsItDrawsAndSaysSo) {
  const Outcome outcome = trainer(0, "--model softmax --epochs 1 --device cpu");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("synthetic digits"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("300 training and 100 test images"), std::string::npos) << outcome.output;
}

TEST_F(Program, ADeviceThatIsNotThereIsAMistakeOfTheCommandLine) {
  for (const int ranks : {0, 2}) {
    const Outcome outcome = trainer(ranks, "--device cuda --model softmax --max-steps 2");
    if (outcome.code == 0) GTEST_SKIP() << "there is a CUDA device";
    EXPECT_EQ(outcome.code, 2) << outcome.output;
    const std::vector<std::string> said = complaints(outcome);
    ASSERT_EQ(said.size(), 1u) << outcome.output;
    EXPECT_TRUE(said.front().starts_with("mnist_trainer: --device cuda: ")) << said.front();
#ifdef MNIST_HAS_CUDA
    EXPECT_NE(said.front().find("no CUDA device"), std::string::npos) << said.front();
#endif
  }
  EXPECT_EQ(trainer(0, "--device gpu").code, 2);
  const Outcome profile = trainer(0, "--device cuda --profile-step");
  EXPECT_EQ(profile.code, 2);
  EXPECT_NE(profile.output.find("--profile-step: only with --device cpu"), std::string::npos) << profile.output;
}

TEST_F(Program, ThreeRanksReportEverythingThatWasAsked) {
  const Outcome outcome = trainer(3, "--epochs 2 --batch 50 --schedule lecture --json " + file("run.json") + " --csv " +
                                         file("run.csv") + " --loss-trace " + file("run.loss") + " --checkpoint " +
                                         file("run.ckpt") + " --plot " + file("run.svg"));
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  const std::vector<nlohmann::json> lines = json_lines("run.json");
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0].at("event"), "run");
  EXPECT_EQ(lines[0].at("parameters"), 347146);
  EXPECT_EQ(lines[0].at("ranks"), 3);
  EXPECT_EQ(lines[2].at("epoch"), 2);
  EXPECT_EQ(lines[2].at("steps"), 6);
  EXPECT_EQ(lines[2].at("total_steps"), 12);
  // Each of 6 steps has an all-reduce of 347146 floats. All 3 ranks together send at least twice these bytes.
  EXPECT_GE(lines[2].at("bytes_sent").get<double>(), 6 * 2 * 347146 * 4.0);
  for (const char* key :
       {"loss", "running_train_accuracy", "train_accuracy", "test_accuracy", "images_per_second", "seconds",
        "step_ms_median", "step_ms_p95", "compute_ms", "communication_exposed_ms", "communication_hidden_ms"})
    EXPECT_TRUE(lines[2].contains(key)) << key;
  EXPECT_GE(lines[2].at("step_ms_p95"), lines[2].at("step_ms_median"));
  EXPECT_EQ(lines[3].at("event"), "end");
  std::istringstream csv(read_file(folder_ / "run.csv")), losses(read_file(folder_ / "run.loss"));
  std::string line;
  int csv_lines = 0, loss_lines = 0;
  while (std::getline(csv, line)) ++csv_lines;
  while (std::getline(losses, line)) ++loss_lines;
  EXPECT_EQ(csv_lines, 3);
  EXPECT_EQ(loss_lines, 12);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run.ckpt"));
  const bool drawn = outcome.output.find("\nplot: ") != std::string::npos;
  EXPECT_EQ(std::filesystem::exists(folder_ / "run.svg"), drawn) << outcome.output;
  EXPECT_TRUE(drawn || outcome.output.find("no plot: gnuplot is not installed") != std::string::npos) << outcome.output;
}

TEST_F(Program, WithoutGnuplotThePlotIsSkippedInOneLine) {
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", folder_.path().c_str(), 1);
  const Outcome outcome = trainer(0, "--model softmax --epochs 1 --plot " + file("run.svg"));
  ::setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("no plot: gnuplot is not installed"), std::string::npos) << outcome.output;
}

TEST_F(Program, AContinuedRunEndsWithTheSameWeights) {
  const std::string run = "--model mlp --optimizer nesterov --epochs 2 --json ";
  EXPECT_EQ(trainer(2, run + file("whole.json")).code, 0);
  EXPECT_EQ(trainer(2, run + file("first.json") + " --max-steps 7 --checkpoint " + file("run.ckpt")).code, 0);
  EXPECT_EQ(trainer(2, run + file("second.json") + " --resume " + file("run.ckpt")).code, 0);
  EXPECT_NE(json_lines("first.json").back(), json_lines("whole.json").back());
  EXPECT_EQ(json_lines("second.json").back(), json_lines("whole.json").back());
}

TEST_F(Program, AContinuedRunOfLocalStepsEndsWithTheSameWeights) {
  const std::string run = "--model mlp --batch 20 --accumulate 2 --local-steps 3 --epochs 2 --json ";
  EXPECT_EQ(trainer(2, run + file("whole.json")).code, 0);
  EXPECT_EQ(trainer(2, run + file("first.json") + " --max-steps 4 --checkpoint " + file("run.ckpt")).code, 0);
  EXPECT_EQ(trainer(2, run + file("second.json") + " --resume " + file("run.ckpt")).code, 0);
  // Training stops after step 4, but only at the end of its group of 3 local steps, after step 6.
  EXPECT_EQ(json_lines("first.json").back().at("steps"), 6);
  EXPECT_NE(json_lines("first.json").back(), json_lines("whole.json").back());
  EXPECT_EQ(json_lines("second.json").back(), json_lines("whole.json").back());
}

TEST_F(Program, LocalStepsSendLess) {
  const std::string run = "--model mlp --optimizer sgd --batch 10 --epochs 1 --json ";  // 30 steps
  EXPECT_EQ(trainer(2, run + file("every.json")).code, 0);
  EXPECT_EQ(trainer(2, run + file("local.json") + " --local-steps 10").code, 0);
  EXPECT_EQ(json_lines("every.json")[1].at("bytes_sent").get<double>(),
            10 * json_lines("local.json")[1].at("bytes_sent").get<double>());
}

TEST_F(Program, ACompressedRunSaysWhatIsDoneAndEndsWithTheSameWeightsWhenContinued) {
  const std::string run =
      "--model softmax --optimizer sgd --epochs 3 --compress top_k:2% --momentum-correction 0.9 --warm-up-steps 4 "
      "--force-compress --json ";
  const Outcome whole = trainer(2, run + file("whole.json"));
  EXPECT_EQ(whole.code, 0) << whole.output;
  EXPECT_NE(whole.output.find("; compression top_k:0.02, momentum correction 0.9, 4 warm-up steps from 0.25, forced;"),
            std::string::npos)
      << whole.output;
  EXPECT_NE(whole.output.find("\ncompression of gradients 0..7850 (the largest bucket): top 1963 of 7850, as forced"),
            std::string::npos)
      << whole.output;
  EXPECT_EQ(trainer(2, run + file("first.json") + " --max-steps 7 --checkpoint " + file("run.ckpt")).code, 0);
  EXPECT_EQ(trainer(2, run + file("second.json") + " --resume " + file("run.ckpt")).code, 0);
  EXPECT_EQ(json_lines("whole.json")[0].at("compression").get<std::string>().substr(0, 10), "top_k:0.02");
  EXPECT_EQ(json_lines("whole.json")[3].at("compression").at("chosen_per_step"), 157);
  EXPECT_EQ(json_lines("second.json").back(), json_lines("whole.json").back());

  const Outcome plain = trainer(2, "--model softmax --optimizer sgd --resume " + file("run.ckpt"));
  EXPECT_EQ(plain.code, 1) << plain.output;
  ASSERT_EQ(complaints(plain).size(), 1u) << plain.output;
  EXPECT_NE(complaints(plain)[0].find("this run has none"), std::string::npos) << plain.output;
}

TEST_F(Program, ResidualsThatBeginInAContinuationAreMentioned) {
  const std::string run = "--model softmax --optimizer sgd --epochs 2 ";
  EXPECT_EQ(trainer(2, run + "--max-steps 3 --checkpoint " + file("run.ckpt")).code, 0);
  const Outcome outcome = trainer(2, run + "--compress top_k --force-compress --resume " + file("run.ckpt"));
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("run.ckpt holds nothing that a compressor kept: residuals begin with zero"),
            std::string::npos)
      << outcome.output;
}

TEST_F(Program, WithoutCompressionNothingOfItIsReported) {
  const Outcome outcome = trainer(2, "--model softmax --epochs 1 --compress none --json " + file("run.json"));
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("; compression none;"), std::string::npos) << outcome.output;
  EXPECT_EQ(outcome.output.find("compression of"), std::string::npos) << outcome.output;
  EXPECT_EQ(json_lines("run.json")[0].at("compression"), "none");
  EXPECT_FALSE(json_lines("run.json")[1].contains("compression"));
}

TEST_F(Program, TheStepThatReachesAnAccuracyIsTheLast) {
  const Outcome outcome = trainer(
      2, "--model softmax --batch 10 --epochs 500 --until-accuracy 0.5 --test-every 7 --json " + file("run.json"));
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("test accuracy 0.5 reached after "), std::string::npos) << outcome.output;
  const std::vector<nlohmann::json> lines = json_lines("run.json");
  const nlohmann::json& reached = lines[lines.size() - 2];
  EXPECT_EQ(reached.at("event"), "reached");
  EXPECT_EQ(reached.at("reached"), true);
  EXPECT_GE(reached.at("test_accuracy"), 0.5);
  EXPECT_GT(reached.at("seconds"), 0.0);
  EXPECT_EQ(reached.at("steps"), lines.back().at("steps"));
  EXPECT_EQ(lines[1].at("event"), "test");
  EXPECT_EQ(lines[1].at("total_steps"), 7);
  for (const nlohmann::json& line : lines) {
    if (line.at("event") != "test" || line.at("total_steps") >= reached.at("steps")) continue;
    EXPECT_LT(line.at("test_accuracy"), 0.5);
  }
}

TEST_F(Program, AnAccuracyThatIsNotReachedIsSaidAndNoError) {
  const Outcome outcome = trainer(2, "--model softmax --epochs 1 --until-accuracy 1 --json " + file("run.json"));
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("test accuracy 1 not reached after 5 steps"), std::string::npos) << outcome.output;
  const std::vector<nlohmann::json> lines = json_lines("run.json");
  EXPECT_EQ(lines[2].at("event"), "reached");
  EXPECT_EQ(lines[2].at("reached"), false);
  EXPECT_EQ(lines[2].at("test_accuracy"), lines[1].at("test_accuracy"));
}

TEST_F(Program, AWrongCommandLineIsOneLineFromRank0AndEndsWith2) {
  const std::pair<const char*, const char*> cases[] = {
      {"--model resnet", "{softmax,mlp,cnn}"},
      {"--optimizer rmsprop", "{sgd,momentum,nesterov,adam}"},
      {"--backend smoke", "ring"},
      {"--overlap maybe", "{on,off}"},
      {"--epoch 3", "--epochs"},
      {"stray", "known: --help"},
      {"--batch 0", "range"},
      {"--accumulate 0", "--accumulate: Value 0 not in range 1 to 1000000"},
      {"--accumulate -2", "--accumulate: Value -2"},
      {"--accumulate two", "--accumulate: Value two"},
      {"--local-steps 0", "--local-steps: Value 0 not in range 1 to 1000000"},
      {"--local-steps -2", "--local-steps: Value -2"},
      {"--local-steps 1.5", "--local-steps: Value 1.5"},
      {"--test-every 0", "--test-every: Value 0 not in range"},
      {"--test-every -1", "--test-every: Value -1"},
      {"--test-every epoch", "--test-every: Value epoch"},
      {"--until-accuracy 0", "--until-accuracy: 0 is not a fraction above 0 and up to 1"},
      {"--until-accuracy -0.5", "--until-accuracy: -0.5 is not"},
      {"--until-accuracy 98.8", "--until-accuracy: 98.8 is not"},
      {"--until-accuracy nan", "--until-accuracy: nan is not"},
      {"--until-accuracy good", "--until-accuracy: good is not"},
      {"--lr nan", "--lr"},
      {"--lr 0.1 --schedule lecture", "--schedule"},
      {"--schedule 3:1", "EPOCH:RATE"},
      {"--compress zip", "--compress: \"zip\": expected none, bf16, fp16, int8, top_k"},
      {"--compress bf16:1%", "--compress: \"bf16:1%\": expected"},
      {"--compress top_k:0", "--compress: \"0\": expected a density above 0 and up to 1"},
      {"--compress top_k:2", "--compress: \"2\": expected a density"},
      {"--compress bf16 --clip 1", "--clip: only with --compress top_k"},
      {"--values bf16", "--values: only with --compress top_k"},
      {"--force-compress", "--force-compress: only with --compress"},
      {"--compress top_k --momentum-correction 0.9", "needs --optimizer sgd, not adam"},
      {"--compress top_k --optimizer sgd --momentum-correction 1", "1 is not a number from 0 and below 1"},
      {"--compress top_k --optimizer sgd --momentum-correction 0.9 --error-feedback off", "needs --error-feedback on"},
      {"--compress top_k --error-feedback maybe", "{on,off}"},
      {"--compress top_k --warm-up-density 0.5", "--warm-up-steps"},
      {"--compress top_k --warm-up-steps 9 --warm-up-density 2", "--warm-up-density: \"2\": expected"},
      {"--compress top_k:50% --warm-up-steps 9", "--warm-up-steps: the density would not fall, from 0.25 to 0.5"},
      {"--compress top_k --clip 1e-60", "--clip: 1e-60 is not a number above 0"},
      {"--compress top_k --optimizer sgd --momentum-correction 0.999999999", "is not a number from 0 and below 1"},
      {"--compress top_k --warm-up-steps -9", "--warm-up-steps: Value -9"},
      {"--compress top_k --clip nan", "--clip: nan is not a number above 0"},
      {"--compress top_k --values f16", "{f32,bf16}"},
      {"--compress top_k --non-finite ignore", "{propagate,skip,abort}"},
      {"--compress top_k --compress-by tensor", "{bucket,layer}"},
      {"--compress int8 --local-steps 2", "--compress: with --local-steps no gradients travel"},
      {"--checkpoint-every 2", "--checkpoint"},
      {"--checkpoint x --checkpoint-every 2days", "500steps"},
      {"--plot curve.pdf", ".svg"},
  };
  for (const auto& [arguments, expected] : cases) {
    const Outcome outcome = trainer(2, arguments);
    EXPECT_EQ(outcome.code, 2) << arguments << "\n" << outcome.output;
    const std::vector<std::string> lines = complaints(outcome);
    ASSERT_EQ(lines.size(), 1u) << arguments << "\n" << outcome.output;
    EXPECT_NE(lines[0].find(expected), std::string::npos) << lines[0];
  }
}

TEST_F(Program, AFileThatCannotBeUsedIsOneLineAndEndsWith1) {
  write_file(folder_ / "broken.ckpt", "MNISTCKP");
  std::filesystem::create_symlink("/dev/zero", folder_ / "zero");
  EXPECT_EQ(trainer(0, "--max-steps 2 --model softmax --checkpoint " + file("softmax.ckpt")).code, 0);
  const std::string before = read_file(folder_ / "softmax.ckpt");
  for (const std::string& arguments :
       {"--data " + file(""), "--resume " + file("none.ckpt"), "--resume " + file("broken.ckpt"),
        "--model mlp --resume " + file("softmax.ckpt") + " --checkpoint " + file("softmax.ckpt"),
        "--resume " + file(""), "--resume " + file("zero"), "--json " + file("no/such/folder"),
        "--checkpoint " + file("no/run.ckpt"), "--checkpoint " + file("")}) {
    const Outcome outcome = trainer(2, arguments);
    EXPECT_EQ(outcome.code, 1) << arguments << "\n" << outcome.output;
    const std::vector<std::string> lines = complaints(outcome);
    ASSERT_EQ(lines.size(), 1u) << arguments << "\n" << outcome.output;
    EXPECT_NE(lines[0].find(folder_.path().string()), std::string::npos) << lines[0];
  }
  EXPECT_EQ(read_file(folder_ / "softmax.ckpt"), before);
}

TEST_F(Program, ACheckpointReplacesNothingButAFile) {
  ASSERT_EQ(::mkfifo(file("pipe").c_str(), 0600), 0);
  const Outcome outcome = trainer(2, "--epochs 1000000 --checkpoint " + file("pipe"));
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  const std::vector<std::string> lines = complaints(outcome);
  ASSERT_EQ(lines.size(), 1u) << outcome.output;
  EXPECT_NE(lines[0].find(file("pipe") + ": not a regular file"), std::string::npos) << lines[0];
  EXPECT_TRUE(std::filesystem::is_fifo(file("pipe")));
}

TEST_F(Program, RanksWithDifferentDataAreRefused) {
  for (const char* rank : {"0", "1"}) {
    const std::filesystem::path folder = folder_ / rank;
    std::filesystem::create_directory(folder);
    for (const std::string set : {"train", "t10k"}) {
      write_file(folder / (set + "-images-idx3-ubyte"), image_file(3));
      write_file(folder / (set + "-labels-idx1-ubyte"), label_file(*rank == '0' ? "\1\2\3" : "\1\2\4"));
    }
  }
  const Outcome outcome = by_rank("--model softmax --data " + file("$RANK"));
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  EXPECT_NE(outcome.output.find("data sets differ between ranks: rank 1"), std::string::npos) << outcome.output;
}

TEST_F(Program, FlagsThatDifferBetweenRanksAreNamedBeforeTheyDoHarm) {
  const std::pair<std::string, std::string> cases[] = {
      {"--batch $((32 + RANK))", "values of --batch differ between ranks: rank 1 has 33, the others 32"},
      {"--accumulate $((1 + RANK))", "values of --accumulate differ between ranks: rank 1 has 2, the others 1"},
      {"--local-steps $((1 + RANK))", "values of --local-steps differ between ranks: rank 1 has 2, the others 1"},
      {"--test-every $((1 + RANK))", "values of --test-every differ between ranks: rank 1 has 2, the others 1"},
      {"--until-accuracy 0.$((8 + RANK))",
       "values of --until-accuracy differ between ranks: rank 1 has 0.9, the others"},
      {"--seed $RANK", "values of --seed differ between ranks: rank 1 has 1, the others 0"},
      {"--epochs $((1 + RANK))", "values of --epochs differ between ranks: rank 1 has 2, the others 1"},
      {"--max-steps $((3 + RANK))", "values of --max-steps differ between ranks: rank 1 has 4, the others 3"},
      {"--model $([ $RANK = 1 ] && echo mlp || echo softmax)", "--model differ between ranks: rank 1 has mlp"},
      {"--optimizer $([ $RANK = 1 ] && echo sgd || echo adam)", "rank 1 has sgd, the others adam"},
      {"--lr 0.$((1 + RANK))", "values of --lr or --schedule differ between ranks: rank 1 has 0.2, the others 0.1"},
      {"--synthetic-train $((200 + RANK))", "--synthetic-train differ between ranks: rank 1 has 201, the others 200"},
      {"--train-limit $((20 + RANK))", "--train-limit differ between ranks: rank 1 has 21, the others 20"},
      {"--bucket-bytes $((1024 + RANK))", "--bucket-bytes differ between ranks: rank 1 has 1025, the others 1024"},
      {"--compress $([ $RANK = 1 ] && echo bf16 || echo fp16)",
       "--compress differ between ranks: rank 1 has bf16, the others fp16"},
      {"--compress top_k:0.$((1 + RANK))", "--compress differ between ranks: rank 1 has top_k:0.2"},
      {"--compress top_k --clip $((1 + RANK))", "values of --clip differ between ranks: rank 1 has 2, the others 1"},
      {"--compress top_k --warm-up-steps $((1 + RANK))", "--warm-up-steps differ between ranks: rank 1 has 2"},
      {"--compress top_k --optimizer sgd --momentum-correction 0.$((1 + RANK))",
       "--momentum-correction differ between ranks: rank 1 has 0.2, the others 0.1"},
      {"--compress bf16 $([ $RANK = 1 ] && echo --force-compress)",
       "--force-compress differ between ranks: rank 1 has true, the others false"},
      {"$([ $RANK = 1 ] && echo --checkpoint " + file("x") + ")",
       "--checkpoint differ between ranks: rank 1 has a file"},
      {"$([ $RANK = 1 ] && echo --resume " + file("x") + ")", "--resume differ between ranks: rank 1 has a file"},
      {"$([ $RANK = 1 ] && echo --epoch)", "known: --help"}};
  for (const auto& [arguments, expected] : cases) {
    const Outcome outcome = by_rank(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments << "\n" << outcome.output;
    const std::vector<std::string> lines = complaints(outcome);
    ASSERT_EQ(lines.size(), 1u) << arguments << "\n" << outcome.output;
    EXPECT_NE(lines[0].find(expected), std::string::npos) << lines[0];
  }
}

TEST_F(Program, AVariableThatTheLibraryRefusesIsOneLineFromRank0AndEndsWith2) {
  const std::pair<const char*, const char*> cases[] = {{"COLLECTIVES_TIMEOUT=soon", "valid is seconds"},
                                                       {"COLLECTIVES_BACKEND=smoke", "known: auto"},
                                                       {"COLLECTIVES_PORT=http", "from 1 to 65535"}};
  for (const auto& [variable, expected] : cases) {
    for (const std::string ranks : {"1", "3"}) {
      const Outcome outcome = run(std::string(variable) + " " + kCollectivesRun + " -n " + ranks + " " + kMnistTrainer);
      EXPECT_EQ(outcome.code, 2) << variable << "\n" << outcome.output;
      const std::vector<std::string> lines = complaints(outcome);
      ASSERT_EQ(lines.size(), 1u) << variable << "\n" << outcome.output;
      EXPECT_NE(lines[0].find(expected), std::string::npos) << lines[0];
    }
  }
}

TEST_F(Program, AnErrorOfTheLibraryIsOneLinePerRankAndEndsWith1) {
  // Ranks on different hosts without a wire between them.
  const Outcome outcome =
      by_rank("--model softmax --quiet", "COLLECTIVES_HOST_ID=$RANK COLLECTIVES_TRANSPORT=shared_memory");
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  std::vector<std::string> lines = complaints(outcome);
  std::ranges::sort(lines);
  ASSERT_EQ(lines.size(), 2u) << outcome.output;
  EXPECT_TRUE(lines[0].starts_with("mnist_trainer: rank 0: ")) << lines[0];
  EXPECT_TRUE(lines[1].starts_with("mnist_trainer: rank 1: ")) << lines[1];
}

TEST_F(Program, QuietSaysNothing) {
  const Outcome outcome = trainer(0, "--model softmax --epochs 1 --quiet");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.output, "");
}

TEST_F(Program, TheProfileNamesEveryCall) {
  const Outcome outcome = trainer(0, "--profile-step --batch 16");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  for (const char* expected :
       {"convolution forward", "pool backward", "dense_1 backward weights", "whole step", "ratio"})
    EXPECT_NE(outcome.output.find(expected), std::string::npos) << outcome.output;
}

TEST(ProgramOnRealDigits, SoftmaxLearnsInOneEpoch) {
  if (real_digits.empty()) GTEST_SKIP() << "MNIST_DIR is not set";
  const Folder folder;
  const Outcome outcome = trainer(2, "--model softmax --optimizer sgd --epochs 1 --data '" + real_digits + "' --json " +
                                         (folder / "run.json").string());
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  std::istringstream lines(read_file(folder / "run.json"));
  std::string line;
  std::getline(lines, line);
  std::getline(lines, line);
  EXPECT_GT(collectives::parse_json(line).at("test_accuracy").get<double>(), 0.90);
}

}  // namespace
}  // namespace mnist
