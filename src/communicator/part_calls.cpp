// Public functions of Communicator for scans and for collectives in which each rank has its own part of a vector, such
// as all_to_all().
//
// Each function stores its arguments in a Call. Impl::run() performs the Call and blocks until it has ended.
// Impl::issue() starts it and returns a Work, the handle with which the program waits. In functions whose names contain
// _v, the parts may have different lengths (PartLayout).
#include "collectives/communicator.hpp"
#include "communicator/call_arguments.hpp"
#include "communicator/communicator_impl.hpp"

namespace collectives {

void Communicator::reduce_scatter_v(ConstBuffer input, Buffer output, const PartLayout& parts, ReduceOp op,
                                    const Options& options) {
  impl_->run(reduce_scatter_v_of(input, output, parts, op), options);
}
Work Communicator::reduce_scatter_v_async(ConstBuffer input, Buffer output, const PartLayout& parts, ReduceOp op,
                                          const Options& options) {
  return Work(impl_->issue(reduce_scatter_v_of(input, output, parts, op), options));
}

void Communicator::all_gather_v(ConstBuffer input, Buffer output, const PartLayout& parts, const Options& options) {
  impl_->run(call_of(Collective::all_gather, input, output, parts), options);
}
Work Communicator::all_gather_v_async(ConstBuffer input, Buffer output, const PartLayout& parts,
                                      const Options& options) {
  return Work(impl_->issue(call_of(Collective::all_gather, input, output, parts), options));
}

void Communicator::all_to_all(ConstBuffer input, Buffer output, const Options& options) {
  impl_->run(call_of(Collective::all_to_all, input, output), options);
}
Work Communicator::all_to_all_async(ConstBuffer input, Buffer output, const Options& options) {
  return Work(impl_->issue(call_of(Collective::all_to_all, input, output), options));
}

void Communicator::all_to_all_v(ConstBuffer input, const PartLayout& input_parts, Buffer output,
                                const PartLayout& output_parts, const Options& options) {
  impl_->run(all_to_all_v_of(input, input_parts, output, output_parts), options);
}
Work Communicator::all_to_all_v_async(ConstBuffer input, const PartLayout& input_parts, Buffer output,
                                      const PartLayout& output_parts, const Options& options) {
  return Work(impl_->issue(all_to_all_v_of(input, input_parts, output, output_parts), options));
}

void Communicator::gather(ConstBuffer input, Buffer output, Rank root, const Options& options) {
  impl_->run(call_of(Collective::gather, input, output, root), options);
}
Work Communicator::gather_async(ConstBuffer input, Buffer output, Rank root, const Options& options) {
  return Work(impl_->issue(call_of(Collective::gather, input, output, root), options));
}

void Communicator::gather_v(ConstBuffer input, Buffer output, const PartLayout& parts, Rank root,
                            const Options& options) {
  impl_->run(call_of(Collective::gather, input, output, parts, root), options);
}
Work Communicator::gather_v_async(ConstBuffer input, Buffer output, const PartLayout& parts, Rank root,
                                  const Options& options) {
  return Work(impl_->issue(call_of(Collective::gather, input, output, parts, root), options));
}

void Communicator::scatter(ConstBuffer input, Buffer output, Rank root, const Options& options) {
  impl_->run(call_of(Collective::scatter, input, output, root), options);
}
Work Communicator::scatter_async(ConstBuffer input, Buffer output, Rank root, const Options& options) {
  return Work(impl_->issue(call_of(Collective::scatter, input, output, root), options));
}

void Communicator::scatter_v(ConstBuffer input, Buffer output, const PartLayout& parts, Rank root,
                             const Options& options) {
  impl_->run(call_of(Collective::scatter, input, output, parts, root), options);
}
Work Communicator::scatter_v_async(ConstBuffer input, Buffer output, const PartLayout& parts, Rank root,
                                   const Options& options) {
  return Work(impl_->issue(call_of(Collective::scatter, input, output, parts, root), options));
}

void Communicator::scan(ConstBuffer input, Buffer output, ReduceOp op, const Options& options) {
  impl_->run(reduction_of(Collective::scan, input, output, op), options);
}
Work Communicator::scan_async(ConstBuffer input, Buffer output, ReduceOp op, const Options& options) {
  return Work(impl_->issue(reduction_of(Collective::scan, input, output, op), options));
}

void Communicator::exclusive_scan(ConstBuffer input, Buffer output, ReduceOp op, const Options& options) {
  impl_->run(reduction_of(Collective::exclusive_scan, input, output, op), options);
}
Work Communicator::exclusive_scan_async(ConstBuffer input, Buffer output, ReduceOp op, const Options& options) {
  return Work(impl_->issue(reduction_of(Collective::exclusive_scan, input, output, op), options));
}

}  // namespace collectives
