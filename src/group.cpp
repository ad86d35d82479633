// Groups: many small tensors, one collective. Tensors of equal type, op and options are packed side by side into one
// buffer, reduced in place and unpacked; a tensor without company goes as it is.
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "communicator_impl.hpp"

namespace collectives {

struct Group::Impl {
  struct Tensor {
    ConstBuffer input;
    Buffer output;
  };
  /// Tensors that can travel together.
  struct Pack {
    DataType type;
    ReduceOp op;
    Options options;
    std::string backend, name;  // what the views in `options` refer to
    std::vector<Tensor> tensors;
    std::vector<std::byte> bytes;

    bool fused() const { return tensors.size() > 1; }
    std::size_t count() const {
      return std::accumulate(tensors.begin(), tensors.end(), std::size_t{0},
                             [](std::size_t sum, const Tensor& tensor) { return sum + tensor.input.count; });
    }
    void fill() {
      bytes.resize(count() * size_of(type));
      std::byte* at = bytes.data();
      for (const Tensor& tensor : tensors) {
        if (tensor.input.count > 0) std::memcpy(at, tensor.input.data, tensor.input.bytes());
        at += tensor.input.bytes();
      }
    }
    void empty_out() {
      const std::byte* at = bytes.data();
      for (const Tensor& tensor : tensors) {
        if (tensor.output.count > 0) std::memcpy(tensor.output.data, at, tensor.output.bytes());
        at += tensor.output.bytes();
      }
    }
    Work issue(Communicator& comm) {
      options.backend = backend;
      options.name = name;
      if (!fused()) return comm.all_reduce_async(tensors[0].input, tensors[0].output, op, options);
      fill();
      const Buffer packed(bytes.data(), count(), type);
      return comm.all_reduce_async(packed, packed, op, options);
    }
  };

  Communicator::Impl* comm = nullptr;
  Communicator* handle = nullptr;
  std::vector<Pack> packs;
};

Group::Group(Communicator& comm) : impl_(std::make_unique<Impl>()) {
  impl_->comm = comm.impl_.get();
  impl_->handle = &comm;
}
Group::Group(Group&&) noexcept = default;
Group& Group::operator=(Group&&) noexcept = default;
Group::~Group() = default;

void Group::all_reduce(ConstBuffer input, Buffer output, ReduceOp op, const Options& options) {
  check_arguments({.collective = Collective::all_reduce, .input = input, .output = output, .op = op},
                  impl_->comm->rank(), impl_->comm->size());
  for (Impl::Pack& pack : impl_->packs)
    if (pack.type == input.type && pack.op == op && pack.backend == options.backend &&
        pack.options.timeout == options.timeout && pack.options.deterministic == options.deterministic) {
      pack.tensors.push_back({input, output});
      return;
    }
  impl_->packs.push_back(
      {input.type, op, options, std::string(options.backend), std::string(options.name), {{input, output}}, {}});
}

void Group::run() { run_async().wait(); }

Work Group::run_async() {
  auto state = std::make_shared<Work::State>();
  auto packs = std::make_shared<std::vector<Impl::Pack>>(std::move(impl_->packs));
  impl_->packs.clear();
  for (Impl::Pack& pack : *packs) state->members.push_back(pack.issue(*impl_->handle));
  state->finish = [packs] {
    for (Impl::Pack& pack : *packs)
      if (pack.fused()) pack.empty_out();
  };
  state->phase = Work::State::Phase::done;  // of its own there is nothing to wait for
  return Work(std::move(state));
}

}  // namespace collectives
