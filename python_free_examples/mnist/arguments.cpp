// Command line of mnist_trainer, the example program that trains a model on the MNIST digits. The library CLI11 splits
// the line and checks most values. This file then checks the schedule of learning rates, the interval between
// checkpoints, and the values that must be equal on all ranks.
#include "arguments.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <collectives/plan.hpp>
#include <iterator>
#include <vector>

#include "base/json.hpp"
#include "base/json_record.hpp"
#include "replicas.hpp"

namespace mnist {
namespace {

using nlohmann::json;

template <class Names>
CLI::IsMember one_of(const Names& names) {
  return CLI::IsMember(std::vector<std::string>(std::begin(names), std::end(names)));
}

[[noreturn]] void refuse(std::string_view why) { throw EarlyExit(fmt::format("mnist_trainer: {}", why), 2); }

/// Throws EarlyExit, which ends the program, with one line about the wrong flag. For an unknown flag, the line lists
/// the known flags.
[[noreturn]] void refuse(const CLI::App& app, const CLI::ParseError& error) {
  std::string text = error.what();
  std::ranges::replace(text, '\n', ' ');
  if (dynamic_cast<const CLI::ExtrasError*>(&error)) {
    std::vector<std::string> known;
    for (const CLI::Option* option : app.get_options()) known.push_back("--" + option->get_lnames().front());
    text += fmt::format("; known: {}", fmt::join(known, " "));
  }
  refuse(text);
}

/// Returns a check for CLI11 that accepts a number if `good` returns true for it.
template <class Good>
auto number(const char* expected, Good good) {
  return [expected, good](const std::string& text) -> std::string {
    float value = 0;
    if (CLI::detail::lexical_cast(text, value) && good(value)) return {};
    return fmt::format("{} is not a number {}", text, expected);
  };
}

/// Flags for the compression of gradients. Most of them are valid only with the compression top_k.
class CompressionFlags {
 public:
  void enter(CLI::App& app) {
    app.add_option("--compress", kind_, "What gradients travel as: none, bf16, fp16, int8, top_k or top_k:DENSITY [1%]")
        ->capture_default_str();
    app.add_flag("--force-compress", wanted_.force, "Compress also where the library finds that it loses time");
    collectives::TopKOptions& top_k = wanted_.top_k;
    of_top_k(app, "--compress-by", by_, "choose from each bucket or from each layer")
        ->check(one_of(std::vector{"bucket", "layer"}))
        ->capture_default_str();
    of_top_k(app, "--error-feedback", feedback_, "keep what is not sent for later steps: on or off")
        ->check(one_of(std::vector{"on", "off"}))
        ->capture_default_str();
    of_top_k(app, "--momentum-correction", top_k.momentum, "momentum of what is chosen from, as 0.9; needs sgd")
        ->check(number("from 0 and below 1", [](float value) { return value >= 0 && value < 1; }));
    CLI::Option* steps =
        of_top_k(app, "--warm-up-steps", top_k.warm_up_calls, "steps in which the density falls to its own")
            ->check(CLI::Range(1, 1'000'000'000));
    of_top_k(app, "--warm-up-density", warm_up_density_, "density of the first of these [25%]")->needs(steps);
    of_top_k(app, "--clip", top_k.clip, "greatest norm of the whole gradient of a bucket")
        ->check(number("above 0", [](float value) { return value > 0 && std::isfinite(value); }));
    of_top_k(app, "--values", values_, "what values travel as: f32 or bf16")
        ->check(one_of(std::vector{"f32", "bf16"}))
        ->capture_default_str();
    of_top_k(app, "--non-finite", non_finite_, "NaN and infinity: propagate, skip the step, or abort")
        ->check(one_of(kNonFiniteNames))
        ->capture_default_str();
  }

  /// Returns the options for compression. Requires that CLI11 has read the command line.
  Compression parsed() const {
    Compression compression = wanted_;
    std::string_view flag;
    try {
      flag = "--compress";
      compression.choose(kind_);
      flag = "--warm-up-density";
      if (!warm_up_density_.empty()) compression.top_k.warm_up_density = parse_density(warm_up_density_);
    } catch (const std::invalid_argument& error) {
      refuse(fmt::format("{}: {}", flag, error.what()));
    }
    compression.by_layer = by_ == "layer";
    compression.top_k.error_feedback = feedback_ == "on";
    compression.top_k.values = values_ == "bf16" ? collectives::DataType::bf16 : collectives::DataType::f32;
    compression.top_k.non_finite = static_cast<collectives::NonFinite>(std::ranges::find(kNonFiniteNames, non_finite_) -
                                                                       std::begin(kNonFiniteNames));

    if (compression.kind != CompressionKind::top_k)
      for (const CLI::Option* option : of_top_k_)
        if (option->count() > 0) refuse(fmt::format("--{}: only with --compress top_k", option->get_lnames().front()));
    if (const auto& top_k = compression.top_k; top_k.warm_up_calls > 0 && top_k.warm_up_density < top_k.density)
      refuse(fmt::format("--warm-up-steps: the density would not fall, from {} to {}", top_k.warm_up_density,
                         top_k.density));
    if (compression.kind == CompressionKind::none && compression.force)
      refuse("--force-compress: only with --compress");
    if (compression.top_k.momentum > 0 && !compression.top_k.error_feedback)
      refuse("--momentum-correction: needs --error-feedback on");
    return compression;
  }

 private:
  template <class Value>
  CLI::Option* of_top_k(CLI::App& app, const std::string& flag, Value& value, const std::string& help) {
    return of_top_k_.emplace_back(app.add_option(flag, value, "top_k: " + help));
  }

  Compression wanted_;
  std::string kind_ = "none", by_ = "bucket", feedback_ = "on", warm_up_density_, values_ = "f32",
              non_finite_ = "propagate";
  std::vector<CLI::Option*> of_top_k_;
};

/// Returns the flags that must be equal on all ranks, with their values, because all ranks train one model. Paths of
/// files may differ, because only rank 0 uses them, so the result only contains whether a path is given. The data sets
/// are compared when they are loaded.
json common(const Arguments& arguments) {
  const TrainerOptions& trainer = arguments.trainer;
  return json::array({{"--model", arguments.model},
                      {"--device", arguments.device},
                      {"--optimizer", kOptimizerNames[static_cast<std::size_t>(arguments.optimizer)]},
                      {"--lr or --schedule", trainer.schedule.text()},
                      {"--epochs", trainer.epochs},
                      {"--max-steps", trainer.max_steps},
                      {"--batch", trainer.batch},
                      {"--accumulate", trainer.accumulate},
                      {"--local-steps", trainer.local_steps},
                      {"--test-every", trainer.test_every},
                      {"--until-accuracy", trainer.until_accuracy.value_or(0)},
                      {"--seed", trainer.seed},
                      {"--data or MNIST_DIR", arguments.data.empty() ? "none" : "a folder"},
                      {"--train-limit", arguments.train_limit},
                      {"--test-limit", arguments.test_limit},
                      {"--synthetic-train", arguments.synthetic_train},
                      {"--synthetic-test", arguments.synthetic_test},
                      {"--backend", arguments.backend.empty() ? "none" : arguments.backend},
                      {"--deterministic", arguments.deterministic},
                      {"--compress", trainer.compression.choice()},
                      {"--compress-by", trainer.compression.by_layer ? "layer" : "bucket"},
                      {"--error-feedback", trainer.compression.top_k.error_feedback ? "on" : "off"},
                      {"--momentum-correction", fmt::format("{}", trainer.compression.top_k.momentum)},
                      {"--warm-up-steps", trainer.compression.top_k.warm_up_calls},
                      {"--warm-up-density", fmt::format("{}", trainer.compression.top_k.warm_up_density)},
                      {"--clip", fmt::format("{}", trainer.compression.top_k.clip)},
                      {"--values", to_string(trainer.compression.top_k.values)},
                      {"--non-finite", kNonFiniteNames[static_cast<std::size_t>(trainer.compression.top_k.non_finite)]},
                      {"--force-compress", trainer.compression.force},
                      {"--bucket-bytes", trainer.bucket_bytes},
                      {"--checkpoint", trainer.checkpoint.empty() ? "none" : "a file"},
                      {"--checkpoint-every", fmt::format("{}{}", trainer.checkpoint_every.count,
                                                         trainer.checkpoint_every.steps ? "steps" : "epochs")},
                      {"--resume", arguments.resume.empty() ? "none" : "a file"},
                      {"--profile-step", arguments.profile_step}});
}

/// Values of options as text, which are checked and converted after CLI11 has read the line.
struct Texts {
  std::string optimizer = "adam", schedule, overlap = "on", every = "1epochs";
  float rate = 0;
  CLI::Option* rate_option = nullptr;
};

void add_model_options(CLI::App& app, Arguments& arguments, Texts& texts) {
  app.add_option("--model", arguments.model, "softmax, mlp or cnn")->check(one_of(kModelNames))->capture_default_str();
  app.add_option("--optimizer", texts.optimizer, "sgd, momentum, nesterov or adam")
      ->check(one_of(kOptimizerNames))
      ->capture_default_str();
  app.add_option("--device", arguments.device, "What computes: cpu, or cuda, a GPU for each rank or shared in turns")
      ->check(one_of(kDeviceNames))
      ->capture_default_str();
  texts.rate_option =
      app.add_option("--lr", texts.rate, "Learning rate [0.1 sgd, 0.05 momentum and nesterov, 0.001 adam]")
          ->check([](const std::string& text) {
            float value = 0;
            const bool good = CLI::detail::lexical_cast(text, value) && std::isfinite(value) && value >= 0;
            return good ? "" : text + " is not a number from 0 upwards";
          });
  app.add_option("--schedule", texts.schedule,
                 "Learning rates by epoch from 0, as 0:1e-3,3:1e-4,7:1e-5 (this one: lecture)")
      ->excludes(texts.rate_option);
}

void add_run_options(CLI::App& app, TrainerOptions& trainer) {
  app.add_option("--epochs", trainer.epochs, "Passes over the training images")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--max-steps", trainer.max_steps, "Stop after so many steps in all");
  app.add_option("--until-accuracy", trainer.until_accuracy, "Stop at the first test with this accuracy, as 0.988")
      ->check([](const std::string& text) {
        double value = 0;
        const bool good = CLI::detail::lexical_cast(text, value) && value > 0 && value <= 1;
        return good ? "" : text + " is not a fraction above 0 and up to 1";
      });
  app.add_option("--test-every", trainer.test_every, "Test after so many steps, beside the tests after epochs")
      ->check(CLI::Range(1, 1'000'000'000));
  app.add_option("--batch", trainer.batch, "Images of a batch, over all ranks")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--accumulate", trainer.accumulate, "Batches of a step, whose gradients are exchanged once")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--local-steps", trainer.local_steps,
                 "Steps that a rank makes on its own before the ranks' models are averaged [1: gradients are summed]")
      ->check(CLI::Range(1, 1'000'000));
}

void add_data_options(CLI::App& app, Arguments& arguments) {
  app.add_option("--seed", arguments.trainer.seed, "Of weights, order and synthetic digits")->capture_default_str();
  app.add_option("--data", arguments.data,
                 "Folder with the four IDX files, plain or .gz [MNIST_DIR, else synthetic digits]")
      ->envname("MNIST_DIR");
  app.add_option("--train-limit", arguments.train_limit, "Use only so many training images")
      ->check(CLI::PositiveNumber);
  app.add_option("--test-limit", arguments.test_limit, "Use only so many test images")->check(CLI::PositiveNumber);
  app.add_option("--synthetic-train", arguments.synthetic_train, "Synthetic training images")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  app.add_option("--synthetic-test", arguments.synthetic_test, "Synthetic test images")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
}

void add_exchange_options(CLI::App& app, Arguments& arguments, Texts& texts) {
  app.add_option("--backend", arguments.backend, "Of the collectives")->check(one_of(collectives::backend_names()));
  app.add_flag("--deterministic", arguments.deterministic, "The same bits whatever the backend");
  app.add_option("--overlap", texts.overlap, "Reduce gradients while the backward pass runs: on or off")
      ->check(one_of(std::vector{"on", "off"}))
      ->capture_default_str();
  app.add_option("--bucket-bytes", arguments.trainer.bucket_bytes, "Gradients of one all-reduce, in bytes")
      ->check(CLI::Range(4, 1 << 30))
      ->capture_default_str();
}

void add_file_options(CLI::App& app, Arguments& arguments, Texts& texts) {
  CLI::Option* checkpoint =
      app.add_option("--checkpoint", arguments.trainer.checkpoint, "File to keep the state of the run in");
  app.add_option("--checkpoint-every", texts.every, "2 or 2epochs, or 500steps; also at the end")
      ->needs(checkpoint)
      ->capture_default_str();
  app.add_option("--resume", arguments.resume, "Continue the run in this checkpoint");
  app.add_option("--json", arguments.files.json, "Write JSON lines here");
  app.add_option("--csv", arguments.files.csv, "Write one line per epoch here");
  app.add_option("--loss-trace", arguments.files.loss_trace, "Write the loss of every step here");
  app.add_option("--plot", arguments.files.plot, "Draw loss and accuracy here with gnuplot: .svg or .png");
  app.add_flag("--quiet", arguments.quiet, "Print errors only");
  app.add_flag("--profile-step", arguments.profile_step, "Time a step and its oneDNN calls on one core, and exit");
}

void require_consistent(const Arguments& arguments, const Texts& texts) {
  const TrainerOptions& trainer = arguments.trainer;
  if (trainer.compression.top_k.momentum > 0 && arguments.optimizer != OptimizerKind::sgd)
    refuse(
        fmt::format("--momentum-correction: the momentum is the compressor's then, which needs --optimizer sgd, not {}",
                    texts.optimizer));
  if (trainer.compression.kind != CompressionKind::none && trainer.local_steps > 1)
    refuse("--compress: with --local-steps no gradients travel, and averages are not compressed");
}

/// Sets the schedule of learning rates and the interval of checkpoints. Requires that optimizer and compression are
/// set.
void parse_schedules(Arguments& arguments, const Texts& texts) {
  TrainerOptions& trainer = arguments.trainer;
  const bool momentum_unchanged = trainer.compression.top_k.momentum > 0;
  std::string_view flag;
  try {
    flag = "--schedule";
    const OptimizerKind acts_as = momentum_unchanged ? OptimizerKind::momentum : arguments.optimizer;
    trainer.schedule = !texts.schedule.empty()
                           ? Schedule::parse(texts.schedule)
                           : Schedule(*texts.rate_option ? texts.rate : Optimizer::usual_rate(acts_as));
    flag = "--checkpoint-every";
    trainer.checkpoint_every = Cadence::parse(texts.every);
  } catch (const std::invalid_argument& error) {
    refuse(fmt::format("{}: {}", flag, error.what()));
  }
}

}  // namespace

Arguments parse_arguments(int argc, const char* const* argv) {
  Arguments arguments;
  arguments.trainer.epochs = 5;
  Texts texts;
  CompressionFlags compression;

  CLI::App app("Trains a digit classifier on every rank at once, its gradients summed by collectives.",
               "mnist_trainer");
  app.set_help_flag("--help", "Print this and exit");
  add_model_options(app, arguments, texts);
  add_run_options(app, arguments.trainer);
  add_data_options(app, arguments);
  add_exchange_options(app, arguments, texts);
  compression.enter(app);
  add_file_options(app, arguments, texts);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    throw EarlyExit(app.help(), 0);
  } catch (const CLI::ParseError& error) {
    refuse(app, error);
  }

  const auto kind = std::ranges::find(kOptimizerNames, texts.optimizer) - std::begin(kOptimizerNames);
  arguments.optimizer = static_cast<OptimizerKind>(kind);
  arguments.trainer.overlap = texts.overlap == "on";
  const std::filesystem::path plot_kind = arguments.files.plot.extension();
  if (!arguments.files.plot.empty() && plot_kind != ".svg" && plot_kind != ".png")
    refuse(fmt::format("--plot: {} is neither .svg nor .png", arguments.files.plot.string()));
  if (arguments.profile_step && arguments.device != "cpu") refuse("--profile-step: only with --device cpu");
  arguments.trainer.compression = compression.parsed();
  require_consistent(arguments, texts);
  parse_schedules(arguments, texts);
  return arguments;
}

std::vector<std::string> texts_of_ranks(collectives::Bootstrap& bootstrap, const std::string& mine) {
  return bootstrap.all_gather(mine, collectives::Deadline::in(std::chrono::minutes(10)));
}

void agree(collectives::Bootstrap& bootstrap, const std::function<void()>& action) {
  json mine;
  try {
    action();
  } catch (const EarlyExit& exit) {
    mine = {{"text", exit.what()}, {"code", exit.code}};
  }
  const std::vector<std::string> texts = texts_of_ranks(bootstrap, collectives::json_text(mine));
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const json parsed = collectives::parse_json(texts[rank], {.most_bytes = collectives::kMostRecordBytes});
    if (parsed.is_null()) continue;
    const collectives::JsonRecord exit(parsed, fmt::format("the arguments of rank {}", rank));
    const std::string text = exit.text("text", collectives::kMostRecordBytes);
    throw EarlyExit(rank == 0 ? text : fmt::format("{} (rank {})", text, rank), exit.integer("code", 0, 255));
  }
}

Arguments parse_arguments(collectives::Bootstrap& bootstrap, int argc, const char* const* argv) {
  Arguments arguments;
  agree(bootstrap, [&] { arguments = parse_arguments(argc, argv); });
  const json mine = common(arguments);
  std::vector<collectives::JsonRecord> of_rank;
  json by_flag = json::object();
  for (const json& flag : mine) by_flag[flag.at(0).get<std::string>()] = flag.at(1);
  for (const std::string& text : texts_of_ranks(bootstrap, collectives::json_text(by_flag)))
    of_rank.emplace_back(collectives::parse_json(text, {.most_bytes = collectives::kMostRecordBytes}),
                         fmt::format("the arguments of rank {}", of_rank.size()));
  for (const json& each : mine) {
    const auto flag = each.at(0).get<std::string>();
    std::vector<std::string> value_of_rank;
    for (const collectives::JsonRecord& flags : of_rank)
      value_of_rank.push_back(each.at(1).is_string() ? flags.text(flag, collectives::kMostRecordBytes)
                                                     : flags.shown(flag));
    const std::string what = "values of " + flag;
    if (const std::string found = disagreement(what, value_of_rank); !found.empty()) refuse(found);
  }
  return arguments;
}

}  // namespace mnist
