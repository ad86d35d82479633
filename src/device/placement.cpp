// Implementation of memory_of(), which determines whether the buffers of a call are in CPU memory or in GPU memory.
//
// The function asks the GPU driver to which memory the address of each buffer belongs. It throws an error if a call
// mixes both kinds of memory, or if a buffer belongs to a GPU other than that of the communicator.
#include "device/placement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "collectives/error.hpp"
#include "core/alignment.hpp"

namespace collectives {
namespace {

std::string_view words_for(Device::Kind kind) {
  switch (kind) {
    case Device::Kind::host: return "host memory";
    case Device::Kind::pinned: return "pinned host memory";
    case Device::Kind::managed: return "managed memory";
    case Device::Kind::device: return "device memory";
  }
  return "memory";
}

struct Operand {
  std::string_view name;
  const void* data;
};

/// Returns the buffers that the call uses, each address once.
std::vector<Operand> operands_of(const Call& call, Rank rank) {
  std::vector<Operand> operands;
  const auto add = [&](bool there, std::string_view name, const ConstBuffer& buffer) {
    const bool seen = std::ranges::find(operands, buffer.data, &Operand::data) != operands.end();
    if (there && buffer.count > 0 && !seen) operands.push_back({name, buffer.data});
  };
  for (const Tensor& tensor : call.tensors) {
    add(true, "input", tensor.input);
    add(true, "output", tensor.output);
  }
  if (!call.tensors.empty()) return operands;
  const Sides sides = sides_of(call, rank);
  add(sides.input, "input", call.input);
  add(sides.output, "output", call.output);
  return operands;
}

}  // namespace

Memory memory_of(const Device& device, const Call& call, std::optional<Device::Stream> stream,
                 const Topology::Gpus& gpus, Rank rank) {
  const auto refuse = [&](Errc code, const std::string& why) {
    const std::string collective(to_string(call.collective));
    throw Error(code, fmt::format("{}: {}", collective, why), rank, kNoRank, collective);
  };
  if (stream && call.collective == Collective::barrier)
    refuse(Errc::unsupported, "a barrier has no place in a stream; all_reduce of one element has");
  std::optional<Memory> all;
  Operand first{};
  Device::Kind first_kind{};
  for (const Operand& one : operands_of(call, rank)) {
    const Device::Memory memory = device.memory_of(one.data);
    const bool on_device =
        memory.kind == Device::Kind::device || (memory.kind == Device::Kind::managed && stream.has_value());
    const Memory whose = on_device ? Memory::device : Memory::host;
    if (memory.kind == Device::Kind::device && memory.device != device.number())
      refuse(Errc::invalid_argument,
             fmt::format("{} lies on GPU {}, and the communicator works on GPU {}, which was current when it was made: "
                         "make one with GPU {} current",
                         one.name, memory.device, device.number(), memory.device));
    if (all.value_or(whose) != whose)
      refuse(Errc::invalid_argument, fmt::format("{} is {}, {} is {}: both must be the device's or both the host's",
                                                 first.name, words_for(first_kind), one.name, words_for(memory.kind)));
    if (!all) first = one, first_kind = memory.kind;
    all = whose;
  }
  if (!all) return Memory::host;
  if (*all == Memory::host) {
    if (stream)
      refuse(Errc::invalid_argument,
             fmt::format("a stream was given, and {} is {}: a stream orders device memory only; leave it out, and wait "
                         "for what the stream does to the buffers",
                         first.name, words_for(first_kind)));
    return Memory::host;
  }
  if (!gpus.everywhere)
    refuse(Errc::unsupported, fmt::format("{} is {}, and {}", first.name, words_for(first_kind), gpus.missing));
  if (stream) {
    int its = -1;
    try {
      its = device.device_of(*stream);
    } catch (const Error& error) {  // The error has no rank and operation yet.
      if (error.code() != Errc::invalid_argument) throw;
      refuse(Errc::invalid_argument, error.what());
    }
    if (its != device.number())
      refuse(Errc::invalid_argument,
             fmt::format("the stream is one of GPU {}, the buffers lie on GPU {}: pass one of theirs", its,
                         device.number()));
    if (device.capturing(*stream))
      refuse(Errc::unsupported,
             "the stream is being captured into a graph, and a collective cannot be: the ranks meet when it is called");
  }
  return Memory::device;
}

void check_range(const Device& device, const std::byte* data, std::size_t bytes) {
  const Device::Memory memory = device.memory_of(data);
  if (memory.kind != Device::Kind::device)
    throw Error(Errc::invalid_argument, fmt::format("it is {}, not device memory", words_for(memory.kind)));
  if (memory.device != device.number())
    throw Error(Errc::invalid_argument,
                fmt::format("it lies on GPU {}, and the communicator works on GPU {}", memory.device, device.number()));
  const Device::Allocation allocation = device.allocation_of(data);
  if (allocation.base == nullptr) return;  // The driver does not know the allocation.
  const auto left = static_cast<std::size_t>(allocation.base + allocation.bytes - data);
  if (bytes > left)
    throw Error(
        Errc::invalid_argument,
        fmt::format("{} B reach beyond the allocation they begin in, which has {} B from there on", bytes, left));
}

void check_alignment(const Call& call, Rank rank) {
  const DataType type = sides_of(call, rank).output ? call.output.type : call.input.type;
  for (const Operand& one : operands_of(call, rank))
    if (reinterpret_cast<std::uintptr_t>(one.data) % alignment_of(type) != 0)
      throw Error(Errc::invalid_argument,
                  fmt::format("{}: {} lies at no multiple of the {} bytes of a {}, as it must where a GPU reads it; "
                              "backend \"hierarchical\" goes through the host and takes it",
                              to_string(call.collective), one.name, alignment_of(type), to_string(type)),
                  rank, kNoRank, std::string(to_string(call.collective)));
}

}  // namespace collectives
