// Tests of the tuning, the numbers by which the library chooses algorithms and protocols: as text, in files, in the
// cache, and from measurements.
#include "core/tuning.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "collectives/communicator.hpp"
#include "collectives/error.hpp"
#include "communicator/settings.hpp"
#include "support/child.hpp"
#include "support/programs.hpp"
#include "support/ranks.hpp"
#include "support/system.hpp"
#include "tuning/calibration.hpp"
#include "tuning/tuning_cache.hpp"

namespace collectives {
namespace {

namespace fs = std::filesystem;
using testing::Child;
using testing::Line;

/// Gives each test a directory of its own. The destructor removes it.
class TuningFiles : public ::testing::Test {
 protected:
  TuningFiles() {
    std::string name = (fs::temp_directory_path() / "tuning_test.XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
  }
  ~TuningFiles() override {
    std::error_code ignored;
    fs::remove_all(directory_, ignored);
  }
  std::string path(const std::string& name) const { return (directory_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
    return path(name);
  }
  static std::string read(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string error_of(const std::string& path) const {
    try {
      tuning_of_file(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
      return error.what();
    }
    return "no error";
  }

 private:
  fs::path directory_;
};

TEST_F(TuningFiles, AFileOverridesWhatItNames) {
  const std::string file = write("some.json", R"({"inline_bytes": 2048, /* by hand */ "single_copy_bytes": "never"})");
  const TuningParameters tuning = tuning_of_file(file);
  EXPECT_EQ(tuning.inline_bytes, 2048u);
  EXPECT_EQ(tuning.single_copy_bytes, Tuning::kNever);
  EXPECT_EQ(tuning.chunk_bytes, TuningParameters{}.chunk_bytes);
  EXPECT_EQ(tuning.source, file);
}

TEST_F(TuningFiles, EveryNumberSurvivesText) {
  TuningParameters tuning;
  tuning.inline_bytes = 3;
  tuning.streaming_bytes = Tuning::kNever;
  tuning.wire_us = 0.1;
  TuningParameters again;
  read_json(parse_json(json_text(to_json(tuning))), again, "here");
  EXPECT_EQ(again, tuning);
}

TEST_F(TuningFiles, EveryKeySurvivesTextAndTheFormThatProgramsSee) {
  nlohmann::json numbers = to_json(TuningParameters{});
  EXPECT_EQ(numbers.size(), 28u);
  std::size_t next = 100;  // a value that every field accepts
  for (auto& [key, value] : numbers.items()) {
    value = ++next;
    if (key.find("_us") != std::string::npos) value = static_cast<double>(next) / 8;
  }
  const TuningParameters read = tuning_of_file(write("all.json", json_text(numbers)));
  EXPECT_EQ(to_json(read), numbers);
  const Tuning seen = read;
  EXPECT_EQ(TuningParameters(seen), read);
  EXPECT_EQ(to_json(TuningParameters(seen)), numbers);
}

TEST_F(TuningFiles, TuningsThatDifferInInternalNumbersAreNotEqual) {
  TuningParameters numbers;
  EXPECT_EQ(Tuning(numbers), Tuning{}) << "a tuning without a handle has built-in numbers";
  const Tuning before = numbers;
  numbers.host_latency_us += 1;
  EXPECT_FALSE(Tuning(numbers) == before);
}

/// Sets COLLECTIVES_TUNING to the path of a file while the object lives.
struct FileInForce {
  explicit FileInForce(const std::string& file) { ::setenv("COLLECTIVES_TUNING", file.c_str(), 1); }
  ~FileInForce() { ::unsetenv("COLLECTIVES_TUNING"); }
};

TEST_F(TuningFiles, NumbersOfTheProgramOverrideTheFileWhoseInternalOnesRemain) {
  const std::string file = write("some.json", R"({"inline_bytes": 2048, "one_shot_bytes": 4096})");
  const FileInForce in_force(file);
  const auto of_file = given_tuning({});
  ASSERT_TRUE(of_file);
  EXPECT_EQ(of_file->inline_bytes, 2048u);
  EXPECT_EQ(of_file->one_shot_bytes, 4096u);

  Tuning own;
  own.frame_bytes = 8192;
  const auto both = given_tuning({.tuning = own});
  EXPECT_EQ(both->frame_bytes, 8192u);
  EXPECT_EQ(both->inline_bytes, Tuning{}.inline_bytes);
  EXPECT_EQ(both->one_shot_bytes, 4096u);
  EXPECT_EQ(both->source, "the program, and " + file + " (COLLECTIVES_TUNING)");

  TuningParameters measured;
  measured.one_shot_bytes = 7;
  EXPECT_EQ(given_tuning({.tuning = measured})->one_shot_bytes, 7u) << "they are of another communicator";
}

TEST_F(TuningFiles, AFileWithAnInternalKeyChangesPlans) {
  const FileInForce in_force(write("some.json", R"({"one_shot_bytes": 0, "inline_bytes": 64})"));
  testing::run_communicators(2, [](Communicator& comm) {
    EXPECT_EQ(comm.plan(Collective::all_reduce, 1000, DataType::f32).protocol, "staged");
  });
}

TEST_F(TuningFiles, ACopyOfATuningThatAProgramChangesKeepsInternalNumbers) {
  TuningParameters measured;
  measured.one_shot_bytes = 0;
  measured.inline_bytes = 64;
  measured.source = "measured";
  const auto protocol = [](const Communicator& comm) {
    return comm.plan(Collective::all_reduce, 1000, DataType::f32).protocol;
  };
  testing::run_communicators(2,
                             [&](Communicator& comm) {
                               EXPECT_EQ(protocol(comm), "staged");
                               Tuning copy = comm.tuning();
                               copy.frame_bytes = 4096;
                               const Communicator part = *comm.split(0, 0, {.tuning = copy});
                               EXPECT_EQ(part.tuning().frame_bytes, 4096u);
                               EXPECT_EQ(part.tuning().source, "measured");
                               EXPECT_EQ(protocol(part), "staged");
                               EXPECT_EQ(protocol(*comm.split(0, 0, {.tuning = Tuning{}})), "one-shot")
                                   << "built-in numbers";
                             },
                             {.tuning = measured});
}

TEST_F(TuningFiles, ABadFileIsNamedWithWhatIsWrongInIt) {
  const auto said = [&](const std::string& text) { return error_of(write("bad.json", text)); };
  EXPECT_NE(error_of(path("none.json")).find("No such file"), std::string::npos);
  EXPECT_NE(error_of(fs::path(path("none.json")).parent_path().string()).find("directory"), std::string::npos);
  EXPECT_NE(said("").find("parse error"), std::string::npos);
  EXPECT_NE(said("{\"inline_bytes\": 2048").find("parse error"), std::string::npos);
  EXPECT_NE(said("[1]").find("not a JSON object"), std::string::npos);
  EXPECT_NE(said(R"({"inline_byte": 1})").find("unknown field \"inline_byte\"; known: inline_bytes"),
            std::string::npos);
  EXPECT_NE(said(R"({"inline_bytes": -1})").find("inline_bytes is -1"), std::string::npos);
  EXPECT_NE(said(R"({"inline_bytes": "1K"})").find("inline_bytes is \"1K\""), std::string::npos);
  EXPECT_NE(said(R"({"inline_bytes": "never"})").find("inline_bytes"), std::string::npos);
  EXPECT_NE(said(R"({"chunk_bytes": 1})").find("chunk_bytes is 1; it must be from 64"), std::string::npos);
  EXPECT_NE(said(R"({"wire_us": 1e999})").find("1e999"), std::string::npos);
  EXPECT_NE(said(R"({"wire_us": null})").find("wire_us is null"), std::string::npos);
}

TEST_F(TuningFiles, ReadsFieldsByTheirOldNamesAndWarnsOnce) {
  const std::string file = write("old.json", R"({"one_shot_bytes_of_crowd": 4096, "notice_bytes": 7})");
  ::testing::internal::CaptureStderr();
  const TuningParameters tuning = tuning_of_file(file);
  EXPECT_EQ(tuning_of_file(file), tuning);
  const std::string warnings = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(tuning.one_shot_bytes_oversubscribed, 4096u);
  EXPECT_EQ(tuning.signal_bytes, 7u);
  EXPECT_NE(warnings.find("\"one_shot_bytes_of_crowd\" is now called \"one_shot_bytes_oversubscribed\""),
            std::string::npos)
      << warnings;
  EXPECT_NE(warnings.find("\"notice_bytes\" is now called \"signal_bytes\""), std::string::npos) << warnings;
  EXPECT_EQ(std::ranges::count(warnings, '\n'), 2) << warnings;
}

TEST_F(TuningFiles, TheNewNameOfAFieldWinsOverTheOldOne) {
  const std::string file =
      write("both.json", R"({"zero_copy_bytes_of_crowd": 1, "zero_copy_bytes_oversubscribed": 2})");
  EXPECT_EQ(tuning_of_file(file).zero_copy_bytes_oversubscribed, 2u);
  EXPECT_NE(error_of(write("bad.json", R"({"notice_bytes": -1})")).find("signal_bytes is -1"), std::string::npos);
}

// ---- the cache ----

Situation situation(int ranks) {
  return {
      .library = "1.2.3, release build", .cpu = "Some \"CPU\" @ 3 GHz", .cores = 8, .ranks = ranks, .barrier_ns = 250};
}

TEST_F(TuningFiles, WhatTheCacheKeepsItFinds) {
  const TuningCache cache(path("new/directory/tuning.json"));
  EXPECT_FALSE(cache.find(situation(2)));
  cache.keep(situation(2), {{"inline_bytes", 512}, {"one_shot_bytes", "never"}}, {{"all_reduce of 512 B", 0.5}});
  cache.keep(situation(4), {{"inline_bytes", 4096}}, {});

  const auto two = cache.find(situation(2));
  ASSERT_TRUE(two);
  EXPECT_EQ(two->inline_bytes, 512u);
  EXPECT_EQ(two->one_shot_bytes, Tuning::kNever);
  EXPECT_EQ(two->chunk_bytes, TuningParameters{}.chunk_bytes);
  EXPECT_NE(two->source.find(cache.path()), std::string::npos) << two->source;
  EXPECT_EQ(cache.find(situation(4))->inline_bytes, 4096u);

  // Fields that only people read: the date and the source of the numbers.
  const nlohmann::ordered_json entry = cache.entries().at(0);
  EXPECT_EQ(entry.at("measured").get<std::string>().size(), std::string("2020-01-01T00:00:00Z").size());
  EXPECT_EQ(entry.at("measurements").at("all_reduce of 512 B"), 0.5);
  EXPECT_EQ(entry.at("of").at("cpu"), "Some \"CPU\" @ 3 GHz");
}

TEST_F(TuningFiles, AnotherSituationIsNotFound) {
  const TuningCache cache(path("tuning.json"));
  cache.keep(situation(2), {{"inline_bytes", 512}}, {});
  Situation other = situation(2);
  other.library = "1.2.4, release build";
  EXPECT_FALSE(cache.find(other));
  other = situation(2);
  other.cpu = "another";
  EXPECT_FALSE(cache.find(other));
  other = situation(2);
  other.cores = 2;
  EXPECT_FALSE(cache.find(other));
  other = situation(2);
  other.kernel_copy = true;
  EXPECT_FALSE(cache.find(other));
  other = situation(2);
  other.barrier_ns = 500;
  EXPECT_FALSE(cache.find(other));
  other.barrier_ns = {};
  EXPECT_TRUE(cache.find(other));
}

TEST_F(TuningFiles, CoresNearAndFarHaveNumbersOfTheirOwn) {
  const TuningCache cache(path("tuning.json"));
  const auto at = [](double barrier_ns) {
    Situation one = situation(2);
    one.barrier_ns = barrier_ns;
    return one;
  };
  cache.keep(at(250), {{"inline_bytes", 512}}, {});
  cache.keep(at(600), {{"inline_bytes", 2048}}, {});
  for (const double near : {180., 250., 340.}) EXPECT_EQ(cache.find(at(near))->inline_bytes, 512u) << near;
  for (const double far : {440., 600., 800.}) EXPECT_EQ(cache.find(at(far))->inline_bytes, 2048u) << far;
  for (const double none : {100., 390., 2000.}) EXPECT_FALSE(cache.find(at(none))) << none;
  // Two entries at about the same distance: the later one is used.
  cache.keep(at(300), {{"inline_bytes", 1024}}, {});
  EXPECT_EQ(cache.find(at(250))->inline_bytes, 1024u);
  EXPECT_EQ(cache.entries().size(), 2u);
}

TEST_F(TuningFiles, AnEntryIsReplacedByTheNextOfItsSituation) {
  const TuningCache cache(path("tuning.json"));
  cache.keep(situation(2), {{"inline_bytes", 512}}, {});
  cache.keep(situation(2), {{"inline_bytes", 256}}, {});
  EXPECT_EQ(cache.find(situation(2))->inline_bytes, 256u);
  EXPECT_EQ(cache.entries().size(), 1u);
}

TEST_F(TuningFiles, ACorruptCacheIsIgnoredAndReplaced) {
  for (const char* text : {"", "{", "[]", "{}", "null", R"({"entries": 1})", R"({"entries": [1]})", "\xff\xfe"}) {
    const TuningCache cache(write("tuning.json", text));
    EXPECT_FALSE(cache.find(situation(2))) << text;
    cache.keep(situation(2), {{"inline_bytes", 512}}, {});
    ASSERT_TRUE(cache.find(situation(2))) << text;
  }
}

TEST_F(TuningFiles, ACacheOfAStrangerIsIgnoredWithOneWarning) {
  std::string objects;
  for (int i = 0; i < 300'000; ++i) objects += "{\"a\":";
  std::string many = R"({"entries":[{})";
  for (int i = 0; i < 300; ++i) many += ",{}";
  const std::string file = path("tuning.json");
  const auto expect_ignored = [&](const char* what) {
    Child child([&](Line&) {
      const testing::StderrCapture captured;
      const TuningCache cache(file);
      const bool found = cache.find(situation(2)).has_value() || cache.find(situation(3)).has_value();
      const std::string text = captured.text();
      return !found && testing::occurrences(text, "warning: the tuning cache .* is ignored") == 1 &&
                     testing::occurrences(text, "json.exception|terminate") == 0
                 ? 0
                 : 1;
    });
    EXPECT_EQ(child.wait(), 0) << what;
  };
  for (const std::string& text : {std::string(2 << 20, '['), objects, many + "]}", std::string("{"),
                                  std::string(2 << 20, ' ') + R"({"entries":[]})"}) {
    write("tuning.json", text);
    expect_ignored(text.substr(0, 20).c_str());
  }
  fs::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  expect_ignored("a FIFO");
  fs::remove(file);
  fs::create_symlink(write("elsewhere.json", R"({"entries":[]})"), file);
  expect_ignored("a link");
}

TEST_F(TuningFiles, AnEntryThatWasEditedBadlyIsIgnoredAlone) {
  const TuningCache cache(path("tuning.json"));
  cache.keep(situation(2), {{"inline_bytes", 512}}, {});
  cache.keep(situation(3), {{"inline_bytes", 512}}, {});
  cache.keep(situation(4), {{"inline_bytes", 512}}, {});
  nlohmann::json file = parse_json(read(cache.path()));
  file["entries"][0]["tuning"]["inline_bytes"] = "much";
  file["entries"][1].erase("measured");
  file["entries"].push_back({{"of", 7}});
  write("tuning.json", json_text(file));
  EXPECT_FALSE(cache.find(situation(2)));
  EXPECT_FALSE(cache.find(situation(3)));
  EXPECT_TRUE(cache.find(situation(4)));
}

TEST_F(TuningFiles, ACacheThatCannotBeWrittenIsNoError) {
  for (const std::string& where : {path("a directory"), write("a file", "") + "/tuning.json", std::string()}) {
    fs::create_directories(path("a directory"));
    const TuningCache cache(where);
    cache.keep(situation(2), {{"inline_bytes", 512}}, {});
    EXPECT_FALSE(cache.find(situation(2)));
  }
  // No partial file remains either.
  for (const auto& entry : fs::directory_iterator(fs::path(path("a file")).parent_path()))
    EXPECT_EQ(entry.path().string().find("XXXXXX"), std::string::npos);
  EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(path("a file")).parent_path()), fs::directory_iterator()), 2);
}

TEST_F(TuningFiles, ConcurrentWritersNeverLeaveHalfAFile) {
  const TuningCache cache(path("tuning.json"));
  cache.keep(situation(1), {{"inline_bytes", 1}}, {});
  const auto writer = [&](int ranks) {
    return [&cache, ranks](Line& line) {
      for (int time = 0; time < 100; ++time) cache.keep(situation(ranks), {{"inline_bytes", 64}}, {});
      line.put(1);
      return 0;
    };
  };
  Child first(writer(2)), second(writer(3));
  for (int time = 0; time < 200; ++time) EXPECT_TRUE(parse_json(read(cache.path())).is_object());
  EXPECT_EQ(first.line().take() + second.line().take(), 2u);
  EXPECT_EQ(first.wait(), 0);
  EXPECT_EQ(second.wait(), 0);
  // The entry of the last writer is kept. An entry of the other writer may be lost, and would be measured again.
  EXPECT_TRUE(cache.find(situation(2)) || cache.find(situation(3)));
  EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(cache.path()).parent_path()), fs::directory_iterator()), 1);
}

// ---- built in ----

// Results bypass the caches from the size of the last-level cache of one core on, not from that of all caches together.
TEST(BuiltInTuning, GoesPastTheCacheOfOneCore) {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
  std::size_t kilobytes = 0;
  if (!(file >> kilobytes)) GTEST_SKIP() << "the system does not tell of a third-level cache";
  if (fs::exists("/sys/devices/system/cpu/cpu0/cache/index4")) GTEST_SKIP() << "the last level is another one";
  EXPECT_EQ(built_in_tuning().streaming_bytes, std::min(kilobytes << 10, std::size_t{128} << 20));
}

// ---- decisions ----

const double kHalf = std::log(2), kTwice = -std::log(2), kNoise = std::log(1.05);

TEST(BestCut, StaysWithoutAReason) {
  const double noise[] = {kNoise, -kNoise, kNoise, -kNoise};
  for (std::size_t now = 0; now <= 4; ++now) EXPECT_EQ(best_cut(noise, now), now);
  EXPECT_EQ(best_cut({}, 0), 0u);
}

TEST(BestCut, MovesToWhereTheOtherProtocolWins) {
  const double gain[] = {kTwice, kTwice, kHalf, kHalf};  // the second protocol is faster from the third size on
  for (std::size_t now = 0; now <= 4; ++now) EXPECT_EQ(best_cut(gain, now), 2u) << now;
}

TEST(BestCut, GoesOverASizeThatLosesALittle) {
  const double gain[] = {kHalf, -kNoise, kHalf, kTwice};
  EXPECT_EQ(best_cut(gain, 3), 0u);
  EXPECT_EQ(best_cut(gain, 4), 0u);
}

TEST(BestCut, DoesNotBuyNothingWithALoss) {
  const double gain[] = {kTwice, kHalf, kHalf};
  EXPECT_EQ(best_cut(gain, 3), 1u);
  const double all[] = {kHalf, kHalf};
  EXPECT_EQ(best_cut(all, 2), 0u);
  const double none[] = {kTwice, kTwice};
  EXPECT_EQ(best_cut(none, 0), 2u);
}

// ---- calibration ----

TEST(Calibration, EveryCallIsMadeByProtocolsThatDiffer) {
  ::setenv("COLLECTIVES_CORES", "9", 1);  // calibration requires a core for each rank
  for (const int ranks : {2, 3, 9}) {
    std::mutex mutex;
    std::vector<nlohmann::json> tunings;
    std::vector<bool> conclusive;
    testing::run_ranks(ranks, [&](Bootstrap& bootstrap) {
      Calibration calibration(bootstrap, std::chrono::seconds(60));
      if (calibration.barrier_ns()) {
        EXPECT_GT(*calibration.barrier_ns(), 0);
      }
      EXPECT_TRUE(calibration.told(bootstrap.rank() == 0));
      EXPECT_FALSE(calibration.told(bootstrap.rank() != 0));
      EXPECT_FALSE(calibration.conclusive());
      calibration.measure();
      const std::lock_guard lock(mutex);
      tunings.push_back(calibration.tuning());
      conclusive.push_back(calibration.conclusive());
      const nlohmann::ordered_json measurements = calibration.measurements();
      for (const auto& [what, calls] : measurements.items())
        for (const auto& [call, times] : calls.items()) {
          EXPECT_GE(times.size(), 2u) << call;
          // Buffers have 1 MiB for any number of ranks.
          EXPECT_TRUE(!call.ends_with(" MiB") || call.ends_with(" of 1 MiB")) << call;
        }
    });
    // Every rank gets equal numbers, and a file may hold them.
    for (const auto& tuning : tunings) EXPECT_EQ(tuning, tunings.front());
    EXPECT_EQ(std::set(conclusive.begin(), conclusive.end()).size(), 1u);
    TuningParameters read;
    read_json(tunings.front(), read, "the calibration");
    EXPECT_TRUE(tunings.front().contains("signal_bytes"));
    EXPECT_EQ(tunings.front().contains("one_shot_bytes"), ranks == 2);
    EXPECT_EQ(tunings.front().contains("one_shot_bytes_of_many"), ranks != 2);
    EXPECT_LE(read.inline_bytes, 8192u);
    EXPECT_GE(read.chunk_bytes, std::size_t{16} << 10);
  }
}

}  // namespace
}  // namespace collectives
