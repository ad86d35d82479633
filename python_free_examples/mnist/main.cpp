// Main function of mnist_trainer, the example program that trains a model on the MNIST digits. It runs alone, or under
// mpirun, srun, torchrun or collectives_run:
//
//   mnist_trainer --model softmax --optimizer sgd
//   mpirun -np 4 mnist_trainer --schedule lecture --epochs 10 --plot curve.svg
//
// Exit status: 0 after success, 1 if the run failed, 2 if the command line or an environment variable is wrong. Errors
// print one line to stderr.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <collectives/collectives.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "device.hpp"
#include "idx.hpp"
#include "profile.hpp"
#include "replicas.hpp"
#include "synthetic.hpp"
#ifdef MNIST_WITH_MPI
#include <collectives/mpi.hpp>
#endif

namespace mnist {
namespace {

#ifdef MNIST_WITH_MPI
/// Returns whether an MPI launcher has started this process. Only then does the program initialize MPI, because MPI
/// would start processes of its own without a launcher.
bool started_by_mpirun() {
  for (const char* mark : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "MPI_LOCALNRANKS"})
    if (std::getenv(mark)) return true;
  return false;
}
#endif

std::unique_ptr<collectives::Bootstrap> make_bootstrap() {
#ifdef MNIST_WITH_MPI
  if (started_by_mpirun()) return std::make_unique<collectives::MpiBootstrap>(MPI_COMM_WORLD);
#endif
  return collectives::bootstrap_from_environment();
}

/// Returns a name of this machine, which tells for reports whether ranks run on the same machine.
std::string machine() {
  std::string boot, name(256, '\0');
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  ::gethostname(name.data(), name.size() - 1);
  return boot + name.c_str();
}

/// Returns the result of make(). If a COLLECTIVES_ variable is invalid, throws EarlyExit, as for an error on the
/// command line.
template <class Make>
auto with_variables(Make&& make, int& rank) {
  try {
    return make();
  } catch (const collectives::Error& error) {
    if (error.code() != collectives::Errc::invalid_argument) throw;
    rank = error.rank();
    throw EarlyExit(fmt::format("mnist_trainer: {}", error.what()), 2);
  }
}

Data load(const Arguments& arguments) {
  Data data = arguments.data.empty()
                  ? draw_digits(arguments.synthetic_train, arguments.synthetic_test, arguments.trainer.seed)
                  : load_idx(arguments.data);
  data.train.truncate(arguments.train_limit);
  data.test.truncate(arguments.test_limit);
  return data;
}

/// Reports the settings of this run, and its data.
void report_run(Report& report, collectives::Communicator& comm, const Arguments& arguments, const Data& data,
                const Model& model, const Optimizer& optimizer, const Device& device) {
  const TrainerOptions& options = arguments.trainer;
  const std::string backend = arguments.backend.empty() ? "auto" : arguments.backend;
  report.say(fmt::format(
      "{}, {} parameters; {}, learning rate {}; batch {} over {} rank{}{}{}; compression {}; backend {}{}; on {}",
      model.name(), model.parameters().size(), optimizer.name(), arguments.trainer.schedule.text(), options.batch,
      comm.size(), comm.size() == 1 ? "" : "s",
      options.accumulate == 1 ? "" : fmt::format(", {} batches a step", options.accumulate),
      options.local_steps == 1 ? "" : fmt::format(", {} local steps", options.local_steps), options.compression.text(),
      backend, arguments.deterministic ? ", deterministic" : "", device.description()));
  report.say(fmt::format("data: {}; {} training and {} test images", data.source, data.train.size(), data.test.size()));
  report.json_line({{"event", "run"},
                    {"model", model.name()},
                    {"parameters", model.parameters().size()},
                    {"optimizer", optimizer.name()},
                    {"schedule", arguments.trainer.schedule.text()},
                    {"batch", options.batch},
                    {"accumulate", options.accumulate},
                    {"local_steps", options.local_steps},
                    {"compression", options.compression.text()},
                    {"ranks", comm.size()},
                    {"backend", backend},
                    {"deterministic", arguments.deterministic},
                    {"device", device.name()},
                    {"overlap", arguments.trainer.overlap},
                    {"bucket_bytes", arguments.trainer.bucket_bytes},
                    {"seed", arguments.trainer.seed},
                    {"data", data.source},
                    {"train_images", data.train.size()},
                    {"test_images", data.test.size()}});
}

void resume_if_asked(Trainer& trainer, Report& report, const Arguments& arguments) {
  if (arguments.resume.empty()) return;
  const bool kept = trainer.resume(arguments.resume);
  report.say(fmt::format("resumed {} at epoch {}, step {}", arguments.resume.string(), trainer.position().epoch + 1,
                         trainer.position().step));
  if (arguments.trainer.compression.kind == CompressionKind::top_k && !kept)
    report.say(
        fmt::format("{} holds nothing that a compressor kept: residuals begin with zero", arguments.resume.string()));
}

void train(collectives::Communicator& comm, const Arguments& arguments, Device& device) {
  Data data;
  std::unique_ptr<Report> report;
  together(comm, [&] {
    data = load(arguments);
    if (comm.rank() == 0) {
      report = std::make_unique<Report>(arguments.files, arguments.quiet);
      if (!arguments.trainer.checkpoint.empty()) require_writable(arguments.trainer.checkpoint);
    } else {
      report = std::make_unique<Report>(ReportFiles{}, true);
    }
  });
  Model model(arguments.model, arguments.trainer.seed, device);
  Optimizer optimizer(arguments.optimizer, model.parameter_count(), device);
  if (arguments.profile_step) {
    if (comm.rank() == 0)
      profile_step(model, optimizer, arguments.trainer.schedule.rate(0), data.train, arguments.trainer.batch, 5.0);
    return;
  }

  report_run(*report, comm, arguments, data, model, optimizer, device);
  Trainer trainer(comm, data, arguments.trainer, model, optimizer, *report);
  resume_if_asked(trainer, *report, arguments);
  if (const std::string plan = trainer.plan_of_compression(); !plan.empty()) report->say(plan);
  trainer.run();
  report->json_line({{"event", "end"},
                     {"steps", trainer.position().total_steps},
                     {"weights_hash", fmt::format("{:016x}", hash_of(device.on_host(model.parameters())))}});
  report->finish();
}

/// Returns the GPU for this rank, or null if `name` is "cpu". Ranks of one machine use its GPUs in turn. If any rank
/// has no GPU, every rank throws EarlyExit with the same text.
std::unique_ptr<Device> open_device(collectives::Bootstrap& bootstrap, const std::string& name) {
  if (name == "cpu") return nullptr;
  const std::vector<std::string> machine_of_rank = texts_of_ranks(bootstrap, machine());
  const auto me = machine_of_rank.begin() + bootstrap.rank();
  const auto local_rank = static_cast<int>(std::count(machine_of_rank.begin(), me, *me));
  std::unique_ptr<Device> device;
  agree(bootstrap, [&] {
    try {
      device = load_cuda_device(local_rank);
    } catch (const std::runtime_error& error) {
      throw EarlyExit(fmt::format("mnist_trainer: --device {}: {}", name, error.what()), 2);
    }
  });
  return device;
}

struct Ending {
  int code;
  bool together = true;  ///< every rank ends this way, at the same point
};

Ending run(int argc, char** argv) {
  int rank = -1;
  try {
    const std::unique_ptr<collectives::Bootstrap> bootstrap = with_variables(make_bootstrap, rank);
    rank = bootstrap->rank();
    const Arguments arguments = parse_arguments(*bootstrap, argc, argv);
    const std::unique_ptr<Device> gpu = open_device(*bootstrap, arguments.device);
    collectives::CommunicatorOptions options;
    options.backend = arguments.backend;
    if (arguments.deterministic) options.deterministic = true;
    options.device_buffers = gpu != nullptr;
    collectives::Communicator comm =
        with_variables([&] { return collectives::Communicator(*bootstrap, options); }, rank);
    train(comm, arguments, gpu ? *gpu : processor());
    return {EXIT_SUCCESS};
  } catch (const EarlyExit& exit) {
    if (rank <= 0) fmt::print(exit.code == 0 ? stdout : stderr, "{}\n", exit.what());
    return {exit.code};
  } catch (const FailedElsewhere&) {
    return {EXIT_FAILURE};
  } catch (const ReplicaError& error) {
    if (rank == 0) fmt::print(stderr, "mnist_trainer: {}\n", error.what());
    return {EXIT_FAILURE};
  } catch (const FileError& error) {
    fmt::print(stderr, "mnist_trainer: {}\n", error.what());
    return {EXIT_FAILURE};
  } catch (const std::exception& error) {
    const std::string who = rank < 0 ? "" : fmt::format("rank {}: ", rank);
    fmt::print(stderr, "mnist_trainer: {}{}\n", who, error.what());
    return {EXIT_FAILURE, false};
  }
}

}  // namespace
}  // namespace mnist

int main(int argc, char** argv) {
#ifdef MNIST_WITH_MPI
  const bool with_mpi = mnist::started_by_mpirun();
  if (with_mpi) MPI_Init(&argc, &argv);
  const mnist::Ending ending = mnist::run(argc, argv);
  // If a peer may have died, MPI_Finalize would wait for it. mpirun detects the failure because the process exits
  // without it.
  if (with_mpi && ending.together) MPI_Finalize();
  return ending.code;
#else
  return mnist::run(argc, argv).code;
#endif
}
