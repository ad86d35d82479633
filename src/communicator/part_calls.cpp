// Public functions of Communicator for collectives with a part for each rank, and for scans. A function describes its
// arguments as a Call, which Communicator::Impl performs.
#include "collectives/communicator.hpp"
#include "communicator/communicator_impl.hpp"

namespace collectives {
namespace {

Call part_call(Collective collective, ConstBuffer input, Buffer output, Rank root) {
  return {.collective = collective, .input = input, .output = output, .root = root};
}

/// Returns a call with the layout of the divided vector. `root`: 0 if the collective has none.
Call part_call_v(Collective collective, ConstBuffer input, Buffer output, const PartLayout& parts, Rank root) {
  return {.collective = collective,
          .input = input,
          .output = output,
          .root = root,
          .counts = parts.counts,
          .displacements = parts.displacements,
          .has_counts = true};
}

Call reduce_scatter_v_call(ConstBuffer input, Buffer output, const PartLayout& parts, ReduceOp op) {
  Call call = part_call_v(Collective::reduce_scatter, input, output, parts, 0);
  call.op = op;
  return call;
}

Call all_to_all_v_call(ConstBuffer input, const PartLayout& input_parts, Buffer output,
                       const PartLayout& output_parts) {
  Call call = part_call_v(Collective::all_to_all, input, output, output_parts, 0);
  call.input_parts = input_parts;
  return call;
}

Call scan_call(Collective collective, ConstBuffer input, Buffer output, ReduceOp op) {
  return {.collective = collective, .input = input, .output = output, .op = op};
}

}  // namespace

void Communicator::reduce_scatter_v(ConstBuffer input, Buffer output, const PartLayout& parts, ReduceOp op,
                                    const Options& options) {
  impl_->run(reduce_scatter_v_call(input, output, parts, op), options);
}
Work Communicator::reduce_scatter_v_async(ConstBuffer input, Buffer output, const PartLayout& parts, ReduceOp op,
                                          const Options& options) {
  return Work(impl_->issue(reduce_scatter_v_call(input, output, parts, op), options));
}

void Communicator::all_gather_v(ConstBuffer input, Buffer output, const PartLayout& parts, const Options& options) {
  impl_->run(part_call_v(Collective::all_gather, input, output, parts, 0), options);
}
Work Communicator::all_gather_v_async(ConstBuffer input, Buffer output, const PartLayout& parts,
                                      const Options& options) {
  return Work(impl_->issue(part_call_v(Collective::all_gather, input, output, parts, 0), options));
}

void Communicator::all_to_all(ConstBuffer input, Buffer output, const Options& options) {
  impl_->run(part_call(Collective::all_to_all, input, output, 0), options);
}
Work Communicator::all_to_all_async(ConstBuffer input, Buffer output, const Options& options) {
  return Work(impl_->issue(part_call(Collective::all_to_all, input, output, 0), options));
}

void Communicator::all_to_all_v(ConstBuffer input, const PartLayout& input_parts, Buffer output,
                                const PartLayout& output_parts, const Options& options) {
  impl_->run(all_to_all_v_call(input, input_parts, output, output_parts), options);
}
Work Communicator::all_to_all_v_async(ConstBuffer input, const PartLayout& input_parts, Buffer output,
                                      const PartLayout& output_parts, const Options& options) {
  return Work(impl_->issue(all_to_all_v_call(input, input_parts, output, output_parts), options));
}

void Communicator::gather(ConstBuffer input, Buffer output, Rank root, const Options& options) {
  impl_->run(part_call(Collective::gather, input, output, root), options);
}
Work Communicator::gather_async(ConstBuffer input, Buffer output, Rank root, const Options& options) {
  return Work(impl_->issue(part_call(Collective::gather, input, output, root), options));
}

void Communicator::gather_v(ConstBuffer input, Buffer output, const PartLayout& parts, Rank root,
                            const Options& options) {
  impl_->run(part_call_v(Collective::gather, input, output, parts, root), options);
}
Work Communicator::gather_v_async(ConstBuffer input, Buffer output, const PartLayout& parts, Rank root,
                                  const Options& options) {
  return Work(impl_->issue(part_call_v(Collective::gather, input, output, parts, root), options));
}

void Communicator::scatter(ConstBuffer input, Buffer output, Rank root, const Options& options) {
  impl_->run(part_call(Collective::scatter, input, output, root), options);
}
Work Communicator::scatter_async(ConstBuffer input, Buffer output, Rank root, const Options& options) {
  return Work(impl_->issue(part_call(Collective::scatter, input, output, root), options));
}

void Communicator::scatter_v(ConstBuffer input, Buffer output, const PartLayout& parts, Rank root,
                             const Options& options) {
  impl_->run(part_call_v(Collective::scatter, input, output, parts, root), options);
}
Work Communicator::scatter_v_async(ConstBuffer input, Buffer output, const PartLayout& parts, Rank root,
                                   const Options& options) {
  return Work(impl_->issue(part_call_v(Collective::scatter, input, output, parts, root), options));
}

void Communicator::scan(ConstBuffer input, Buffer output, ReduceOp op, const Options& options) {
  impl_->run(scan_call(Collective::scan, input, output, op), options);
}
Work Communicator::scan_async(ConstBuffer input, Buffer output, ReduceOp op, const Options& options) {
  return Work(impl_->issue(scan_call(Collective::scan, input, output, op), options));
}

void Communicator::exclusive_scan(ConstBuffer input, Buffer output, ReduceOp op, const Options& options) {
  impl_->run(scan_call(Collective::exclusive_scan, input, output, op), options);
}
Work Communicator::exclusive_scan_async(ConstBuffer input, Buffer output, ReduceOp op, const Options& options) {
  return Work(impl_->issue(scan_call(Collective::exclusive_scan, input, output, op), options));
}

}  // namespace collectives
