// Implementation of HostShare, by which the GPU of one rank does its share of a collective among the ranks of a host.
//
// A share is the range of the vector that one rank processes for all ranks of the host. The function perform() finds
// the buffers that the share reads (sources) and writes (destinations). A stream is a queue of work for the GPU, and a
// kernel is a function that the GPU runs. The function perform() puts at most one kernel into the stream. If there are
// more destinations than a kernel can write, it also puts copies into the stream.
#include "device/host_share.hpp"

#include <algorithm>

#include "shared_memory/host_operands.hpp"

namespace collectives {

void HostShare::perform(const HostTask& task, int self, std::span<const BufferExchange::Buffers> buffers,
                        const Reduction& reduction, Device::Stream stream) {
  const int ranks = static_cast<int>(buffers.size());
  const Range share = task.share(self);
  if (share.count == 0) return;
  sources_.clear();
  outs_.clear();
  for (int rank = 0; rank < ranks; ++rank)
    if (task.is_source(rank, self))
      sources_.push_back(
          {element_at(buffers[static_cast<std::size_t>(rank)].source, share.first, task.element), reduction.unreduced});
  // Each rank's list of destinations begins with its own buffer, so that the ranks do not all write to one GPU at once.
  for (int turn = 0; turn < ranks; ++turn)
    if (const int rank = (self + turn) % ranks; task.is_destination(rank, self))
      outs_.push_back(element_at(buffers[static_cast<std::size_t>(rank)].destination, share.first, task.element));

  // A kernel writes to at most kMostOuts destinations. All others then receive copies of the first destination.
  std::span<std::byte* const> left(outs_);
  const std::byte* made = sources_[0].data;
  if (task.combines()) {
    const auto at_once = left.first(std::min(left.size(), Device::kMostOuts));
    device_.kernels().fold(reduction.op, reduction.type, sources_, at_once, share.count, reduction.finish_ranks,
                           stream);
    left = left.subspan(at_once.size());
    made = at_once[0];
  }
  copy_to_all(device_, left, made, share.count * task.element, stream);
}

void copy_to_all(Device& device, std::span<std::byte* const> to, const std::byte* from, std::size_t bytes,
                 Device::Stream stream) {
  for (std::byte* const out : to)
    if (out != from) device.copy(out, from, bytes, stream);
}

}  // namespace collectives
