// Implementation of DeviceCalls, which performs the operations of a communicator on GPU memory. An operation is one
// call, from issue to end.
//
// A device path does the work of an operation, for example by NCCL or by kernels of this library. The plan of the
// operation names its device path. DeviceCalls starts the path, progresses it, and ends it. DeviceCalls also splits
// NCCL communicators, and leaves them when the communicator ends.
#include "communicator/device_calls.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "base/wait.hpp"
#include "communicator/host_operation.hpp"
#include "communicator/nccl_init.hpp"
#include "compression/top_k/top_k_impl.hpp"
#include "device/multi_node_path.hpp"
#include "device/placement.hpp"

namespace collectives {
namespace {

/// Calls `ask`. If an Error of the GPU or of NCCL names no operation, throws a std::runtime_error with its text
/// instead. OperationQueue later adds the operation and the rank to the text of a std::runtime_error.
template <class Ask>
auto with_gpu(Ask&& ask) {
  try {
    return ask();
  } catch (const Error& error) {
    if (error.operation().empty() && (error.code() == Errc::system || error.code() == Errc::aborted))
      throw std::runtime_error(error.what());
    throw;
  }
}

void leave_nccl_comm(NcclComm& nccl_comm, const CommunicatorResources& resources) noexcept {
  try {
    nccl_comm.leave();
    CollectiveBackoff backoff(resources.context.oversubscribed);
    for (const Deadline patience = resources.leave_deadline(); !nccl_comm.ready(); backoff.wait())
      if (patience.passed()) return nccl_comm.stop();
  } catch (const std::exception& error) {
    log_warning(resources.rank(), "leaving a communicator: {}", error.what());
  }
}

}  // namespace

std::exception_ptr DeviceCalls::place(Call& call, const Options& options) const {
  const CommunicatorContext& context = resources_.context;
  const Rank rank = context.rank;
  if (context.device == nullptr) {
    if (options.stream)
      throw Error(Errc::unsupported,
                  fmt::format("{}: a stream was given, and this communicator takes no device buffers: {}",
                              to_string(call.collective), context.no_device),
                  rank, kNoRank, std::string(to_string(call.collective)));
    return nullptr;
  }
  try {
    call.memory = memory_of(*context.device, call, options.stream, context.topology.gpus, rank);
  } catch (const Error& error) {
    if (error.code() != Errc::system) throw;
    call.memory = Memory::device;
    return std::current_exception();
  }
  return nullptr;
}

void DeviceCalls::prepare(Operation& operation, const Call& call, const Options& options, bool blocking,
                          std::exception_ptr refused) const {
  if (operation.device == nullptr) operation.device = std::make_unique<DeviceCall>();
  operation.on_device = true;
  DeviceCall& device = *operation.device;
  device.call = call;
  device.call.counts = device.call.displacements = {};
  device.call.input_parts = {};
  device.call.tensors = {};
  device.tensors.assign(call.tensors.begin(), call.tensors.end());
  // The lengths of parts are numbers of elements of the op.
  const std::size_t each =
      element_bytes_of(operation.call->signature.type, call.op) / size_of(operation.call->signature.type);
  device.mine = each * first_of(operation.call->parts, resources_.rank());
  device.stream = options.stream;
  device.ends_in_stream = blocking;
  device.tensor = options.compressor == nullptr ? nullptr : &options.compressor->impl().tensor(options.name);
  device.refused = std::move(refused);
  device.started = device.in_host = device.with_gpu = device.in_flight = false;
  if (!device.stream || device.refused != nullptr) return;
  try {
    if (device.ready == nullptr) device.ready = resources_.context.device->new_event();
    resources_.context.device->record(device.ready, *device.stream);
  } catch (const std::exception&) {
    device.refused = std::current_exception();
  }
}

void DeviceCalls::start(Operation& operation) const {
  DeviceCall& device = *operation.device;
  with_gpu([&] {
    if (device.refused != nullptr) std::rethrow_exception(device.refused);
    device.started = true;
    resources_.path_of(operation).start(device, *operation.call, operation.job);
  });
}

bool DeviceCalls::progress(Operation& operation) const {
  DeviceCall& device = *operation.device;
  PathExecutor& path = resources_.path_of(operation);
  Executor& executor = *resources_.executor;
  for (;;) {
    const auto performed = [&] { return progress_on_host(operation, executor, *resources_.observer); };
    if (device.in_host && !(operation.job.input_stream != nullptr ? with_gpu(performed) : performed())) {
      device.with_gpu = executor.waits_for_input();
      return false;
    }
    device.in_host = false;
    const PathExecutor::PathState path_state = with_gpu([&] { return path.progress(); });
    device.with_gpu = path_state == PathExecutor::PathState::gpu;
    device.in_flight = path_state == PathExecutor::PathState::in_flight;
    if (path_state == PathExecutor::PathState::done) return true;
    if (path_state != PathExecutor::PathState::host) return false;
    device.in_host = operation.multi_phase == nullptr || compress(operation, resources_);
    if (device.in_host) executor.start(operation.job);
  }
}

bool DeviceCalls::retire(const Operation& oldest) const {
  if (!with_gpu([&] { return resources_.path_of(oldest).retire_oldest(); })) return false;
  // NCCL completes a call if the lengths are equal on all ranks, even if the ranks pass different types or ops. The
  // signatures of the ranks are therefore compared here.
  resources_.failure_detector->check_mismatch({oldest.sequence, oldest.call->signature, oldest.name});
  return true;
}

void DeviceCalls::release(Operation& operation) const noexcept {
  if (operation.device != nullptr && operation.device->ready != nullptr)
    resources_.context.device->end_event(operation.device->ready);
  operation.device = nullptr;
}

void DeviceCalls::abandon(const BegunPaths& begun) const noexcept {
  for (std::size_t path = 0; path < kDevicePaths; ++path)
    if (begun[path]) resources_.paths[path]->abandon();
}

std::unique_ptr<NcclComm> DeviceCalls::split(int color, int key, std::uint64_t sequence) const {
  std::unique_ptr<NcclComm> part =
      nccl_comm_split(resources_.nccl()->nccl_comm(), color, key, sequence, resources_.context,
                      *resources_.failure_detector, Deadline::in(resources_.settings.timeout));
  return color < 0 ? nullptr : std::move(part);
}

void DeviceCalls::leave() const noexcept {
  const auto* const two_level =
      static_cast<MultiNodePath*>(resources_.paths[static_cast<std::size_t>(DevicePath::multi_host)].get());
  if (two_level != nullptr && two_level->nccl_comm() != nullptr) leave_nccl_comm(*two_level->nccl_comm(), resources_);
  if (resources_.nccl() != nullptr) leave_nccl_comm(resources_.nccl()->nccl_comm(), resources_);
}

}  // namespace collectives
