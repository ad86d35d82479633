// Implementation of Group, which packs many small tensors into few all-reduces. One all-reduce of a long vector costs
// less than many all-reduces of short vectors.
//
// A pack holds the tensors with one combination of type, op, kind of memory and options. Only the option `name` may
// differ. The tensors of a pack are copied into one buffer, reduced there, and copied to their outputs. A pack of one
// tensor needs no copies: the tensor is reduced in its own memory. A tensor with a compressor has a pack of its own.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "collectives/error.hpp"
#include "communicator/communicator_impl.hpp"
#include "communicator/foreign_calls.hpp"
#include "communicator/group_overlap.hpp"

namespace collectives {

struct Group::Impl {
  /// Tensors that are reduced together.
  struct Pack {
    DataType type = DataType::f32;
    ReduceOp op;
    Memory memory = Memory::host;
    Options options;
    std::string backend, name;  // storage of texts to which `options` refers
    std::vector<Tensor> tensors;
    std::vector<std::size_t> lengths;  // lengths of all tensors
    std::string names;                 // names of all tensors
    bool any_named = false;            // whether any tensor has a name
    std::exception_ptr refused;        // error that place() returned for a tensor; null: none
    std::vector<std::byte> bytes;      // copies of several tensors in host memory, one after the other

    void add(const Tensor& tensor, std::string_view named) {
      tensors.push_back(tensor);
      lengths.push_back(tensor.input.count);
      any_named = any_named || !named.empty();
      names.append(tensors.size() > 1 ? ", " : "");
      // Escapes keep ("a, b", "c") apart from ("a", "b, c"), because ranks compare the hash of this text.
      for (const char letter : named) names.append(letter == ',' || letter == '\\' ? "\\" : "").push_back(letter);
    }
    bool fused() const { return tensors.size() > 1; }
    std::size_t count() const {
      return std::accumulate(tensors.begin(), tensors.end(), std::size_t{0},
                             [](std::size_t sum, const Tensor& tensor) { return sum + tensor.input.count; });
    }
    /// Copies the tensors. Throws Error{system} if there is no memory for the copies.
    void fill(Rank rank) {
      const std::size_t whole = count() * size_of(type);
      try {
        bytes.resize(whole);
      } catch (const std::exception&) {  // std::bad_alloc or std::length_error
        throw Error(
            Errc::system,
            fmt::format("all_reduce: no memory for the {} of a group of {} tensors", bytes_text(whole), tensors.size()),
            rank, rank, "all_reduce");
      }
      std::byte* at = bytes.data();
      for (const Tensor& tensor : tensors) {
        if (tensor.input.count > 0) std::memcpy(at, tensor.input.data, tensor.input.bytes());
        at += tensor.input.bytes();
      }
    }
    void empty_out() {
      if (bytes.empty()) return;
      const std::byte* at = bytes.data();
      for (const Tensor& tensor : tensors) {
        if (tensor.output.count > 0) std::memcpy(tensor.output.data, at, tensor.output.bytes());
        at += tensor.output.bytes();
      }
    }
    std::shared_ptr<Work::State> issue(Communicator::Impl& comm) {
      options.backend = backend;
      options.name = name;
      Call call{.collective = Collective::all_reduce, .op = op};
      // The layout is a hash of the number and the lengths of the tensors, in their order. The layout belongs to the
      // signature, the arguments that ranks compare. Ranks with other numbers or lengths thus get an error.
      call.layout = hash_bytes(lengths.data(), lengths.size() * sizeof lengths[0], lengths.size());
      call.lengths = lengths;
      if (fused() && any_named) call.names = names;
      if (fused() && memory == Memory::device) {  // the code for GPU memory packs the tensors
        const auto any = std::ranges::find_if(tensors, [](const Tensor& tensor) { return tensor.output.count > 0; });
        call.output = Buffer(any->output.data, count(), type);
        call.input = call.output;
        call.tensors = tensors;
      } else if (fused()) {
        try {
          fill(comm.resources.rank());
        } catch (const Error& error) {
          comm.preparation().refuse(call, error.what());
          throw;
        }
        call.output = Buffer(bytes.data(), count(), type);
        call.input = call.output;
      } else {
        call.input = tensors[0].input;
        call.output = tensors[0].output;
      }
      return comm.issue(call, options, refused);
    }
  };

  Communicator::Impl* comm = nullptr;
  std::vector<Pack> packs;
  std::vector<Tensor> tensors;  // of all packs, in the order of the calls of all_reduce()
};

Group::Group(Communicator& comm) : impl_(std::make_unique<Impl>()) { impl_->comm = comm.impl_.get(); }
Group::Group(Group&&) noexcept = default;
Group& Group::operator=(Group&&) noexcept = default;
Group::~Group() = default;

void Group::all_reduce(ConstBuffer input, Buffer output, ReduceOp op, const Options& options) {
  impl_->comm->check_process("all_reduce");
  Call call{.collective = Collective::all_reduce, .input = input, .output = output, .op = op};
  std::exception_ptr refused;
  // Throws, for example for an unknown backend, before data is sent.
  impl_->comm->preparation().check_member(call, options, refused);
  impl_->tensors.push_back({input, output});
  for (Impl::Pack& pack : impl_->packs)
    if (options.compressor == nullptr && pack.options.compressor == nullptr && pack.type == input.type &&
        pack.op == op && pack.backend == options.backend && pack.options.timeout == options.timeout &&
        pack.options.deterministic == options.deterministic && pack.options.wire == options.wire &&
        pack.options.force == options.force && pack.memory == call.memory && pack.options.stream == options.stream) {
      pack.add({input, output}, options.name);
      if (pack.refused == nullptr) pack.refused = refused;
      return;
    }
  Impl::Pack& pack = impl_->packs.emplace_back();
  pack.type = input.type;
  pack.op = op;
  pack.memory = call.memory;
  pack.options = options;
  pack.backend = options.backend;
  pack.name = options.name;
  pack.refused = refused;
  pack.add({input, output}, options.name);
}

std::uint64_t CallRefusal::publish(Group& group, std::string_view why) const noexcept {
  auto& comm = *group.impl_->comm;
  return comm.inherited() ? 0 : comm.preparation().refuse({.collective = collective, .split = split}, why);
}

void Group::run() { run_async().wait(); }

Work Group::run_async() {
  impl_->comm->check_process("group");
  // The packs outlive their operations, because the function `finish` of the Work's state holds the last reference.
  const auto packs = std::make_shared<std::vector<Impl::Pack>>(std::move(impl_->packs));
  impl_->packs.clear();
  const std::vector<Tensor> tensors = std::move(impl_->tensors);
  impl_->tensors.clear();
  try {
    check_apart(tensors, impl_->comm->resources.rank());
  } catch (const Error& error) {
    impl_->comm->preparation().refuse({.collective = Collective::all_reduce}, error.what());
    throw;
  }
  auto state = std::make_shared<Work::State>();
  state->finish = [packs] {
    for (Impl::Pack& pack : *packs)
      if (pack.fused()) pack.empty_out();
  };
  state->phase = Work::State::Phase::done;  // the Work of a group has no operation of its own; each member has one
  for (Impl::Pack& pack : *packs) state->members.push_back(Work(pack.issue(*impl_->comm)));
  return Work(std::move(state));
}

}  // namespace collectives
