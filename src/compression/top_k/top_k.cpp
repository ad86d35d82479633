// Public functions of TopK, a compressor for all-reduce calls on gradients. A sparse call sends only the k elements of
// greatest magnitude. A dense call sends all elements.
//
// TopK adds the elements that were not sent to the residual of the tensor, from which later calls may send them. A
// program that writes a checkpoint calls save(), which returns the residuals as bytes. After a restart, it passes the
// bytes of all ranks to load().
#include "collectives/top_k.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "collectives/error.hpp"
#include "compression/top_k/top_k_impl.hpp"

namespace collectives {
namespace {

constexpr char kMagic[8] = {'t', 'o', 'p', '_', 'k', ' ', '1', '\n'};

[[noreturn]] void refuse(const std::string& why) { throw Error(Errc::invalid_argument, "top-k: " + why); }

class Writer {
 public:
  void bytes(const void* data, std::size_t count) {
    const auto* from = static_cast<const std::byte*>(data);
    out_.insert(out_.end(), from, from + count);
  }
  void number(std::uint64_t value) { bytes(&value, sizeof value); }
  void values(const std::vector<float>& list) {
    number(list.size());
    bytes(list.data(), list.size() * sizeof(float));
  }
  std::vector<std::byte> take() { return std::move(out_); }

 private:
  std::vector<std::byte> out_;
};

/// Reader of the bytes that Writer has written. It checks each length before it allocates memory.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> in) : in_(in) {}
  void bytes(void* to, std::size_t count) {
    if (count > in_.size()) refuse("a saved state ends early");
    if (count > 0) std::memcpy(to, in_.data(), count);
    in_ = in_.subspan(count);
  }
  std::uint64_t number() {
    std::uint64_t value;
    bytes(&value, sizeof value);
    return value;
  }
  std::vector<float> values(std::uint64_t most) {
    const std::uint64_t count = number();
    if (count > most || count > in_.size() / sizeof(float)) refuse("a saved state has a length that cannot be");
    std::vector<float> list(count);
    bytes(list.data(), list.size() * sizeof(float));
    return list;
  }
  std::string text() {
    const std::uint64_t count = number();
    if (count > in_.size()) refuse("a saved state has a name longer than itself");
    std::string text(count, '\0');
    bytes(text.data(), count);
    return text;
  }
  bool at_end() const { return in_.empty(); }

 private:
  std::span<const std::byte> in_;
};

std::map<std::string, ResidualState> read_state(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  char magic[sizeof kMagic];
  reader.bytes(magic, sizeof magic);
  if (std::memcmp(magic, kMagic, sizeof magic) != 0) refuse("this is no saved state");
  std::map<std::string, ResidualState> tensors;
  for (std::uint64_t left = reader.number(); left > 0; --left) {
    const std::string name = reader.text();
    ResidualState state;
    state.count = reader.number();
    state.calls = reader.number();
    state.slice.first = reader.number();
    state.slice.count = reader.number();
    state.slices = static_cast<std::uint32_t>(reader.number());
    if (state.calls == 0 || state.count == 0 || state.count >= kTooMany)
      refuse(fmt::format("the saved state of \"{}\" is that of no call", name));
    if (tensors.contains(name)) refuse(fmt::format("a saved state has \"{}\" twice", name));
    if (state.slice.count > state.count || state.slice.first > state.count - state.slice.count)
      refuse(fmt::format("the saved state of \"{}\" has a slice outside of the tensor", name));
    state.residual = reader.values(state.slice.count);
    state.velocity = reader.values(state.slice.count);
    state.pending = reader.values(state.count);
    if ((!state.residual.empty() && state.residual.size() != state.slice.count) ||
        (!state.velocity.empty() && state.velocity.size() != state.slice.count) ||
        (!state.pending.empty() && state.pending.size() != state.count))
      refuse(fmt::format("the saved state of \"{}\" has lists of the wrong length", name));
    tensors[name] = std::move(state);
  }
  if (!reader.at_end()) refuse("a saved state goes on after its end");
  return tensors;
}

/// Adds the residuals of `from` to the pending residual of `to`. The pending residual covers the whole tensor.
void add_pending(ResidualState& to, const ResidualState& from) {
  if (from.residual.empty() && from.pending.empty()) return;
  to.pending.resize(to.count);
  for (std::size_t i = 0; i < from.residual.size(); ++i) to.pending[from.slice.first + i] += from.residual[i];
  for (std::size_t i = 0; i < from.pending.size(); ++i) to.pending[i] += from.pending[i];
}

}  // namespace

TopK::TopK(const TopKOptions& options) : impl_(std::make_unique<Impl>(options)) {
  const auto share = [](double value) { return value > 0 && value <= 1; };  // The result is false for NaN.
  if (!share(options.density)) refuse(fmt::format("density {} is not above 0 and at most 1", options.density));
  if (!share(options.warm_up_density))
    refuse(fmt::format("warm_up_density {} is not above 0 and at most 1", options.warm_up_density));
  if (!(options.momentum >= 0 && options.momentum < 1))
    refuse(fmt::format("momentum {} is not at least 0 and below 1", options.momentum));
  if (options.momentum > 0 && !options.error_feedback) refuse("momentum needs error_feedback");
  if (!(options.clip >= 0) || !std::isfinite(options.clip)) refuse(fmt::format("clip {} is no norm", options.clip));
  if (options.values != DataType::f32 && options.values != DataType::bf16)
    refuse(fmt::format("values travel as f32 or bf16, not as {}", to_string(options.values)));
}
TopK::TopK(TopK&&) noexcept = default;
TopK& TopK::operator=(TopK&&) noexcept = default;
TopK::~TopK() = default;

const TopKOptions& TopK::options() const noexcept { return impl_->options; }

SparseTensor& TopK::Impl::tensor(std::string_view name) {
  auto found = tensors.find(name);
  if (found == tensors.end())
    found = tensors.emplace(name, std::make_unique<SparseTensor>(std::string(name), options)).first;
  return *found->second;
}

std::size_t TopK::Impl::next_k(std::string_view name, std::size_t count, Rank rank) const {
  const auto found = tensors.find(name);
  if (found == tensors.end()) {
    const SparseTensor fresh(std::string(name), options);
    fresh.check(count, rank);
    return fresh.next_k(count);
  }
  found->second->check(count, rank);
  return found->second->next_k(count);
}

TopKReport TopK::report(std::string_view name, bool norms) const {
  const auto found = impl_->tensors.find(name);
  if (found == impl_->tensors.end()) refuse(fmt::format("no tensor \"{}\"", name));
  return found->second->report(norms);
}

std::vector<std::string> TopK::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : impl_->tensors) names.push_back(name);
  return names;
}

std::vector<std::byte> TopK::save() const {
  Writer writer;
  writer.bytes(kMagic, sizeof kMagic);
  const auto used = [](const auto& entry) {
    const ResidualState& state = std::as_const(*entry.second).residual().state();
    return state.calls > 0 && state.count > 0;
  };
  writer.number(static_cast<std::uint64_t>(std::ranges::count_if(impl_->tensors, used)));
  for (const auto& [name, tensor] : impl_->tensors) {
    if (!used(*impl_->tensors.find(name))) continue;
    const TensorResidual& residual = tensor->residual();
    ResidualState copy;
    if (residual.on_device() != nullptr) copy = residual.full_state();
    const ResidualState& state = residual.on_device() != nullptr ? copy : residual.state();
    writer.number(name.size());
    writer.bytes(name.data(), name.size());
    for (const std::uint64_t number : {std::uint64_t{state.count}, state.calls, std::uint64_t{state.slice.first},
                                       std::uint64_t{state.slice.count}, std::uint64_t{state.slices}})
      writer.number(number);
    writer.values(state.residual);
    writer.values(state.velocity);
    writer.values(state.pending);
  }
  return writer.take();
}

void TopK::load(std::span<const std::vector<std::byte>> states, Rank rank, int ranks) {
  if (ranks < 1 || rank < 0 || rank >= ranks) refuse(fmt::format("rank {} of {}", rank, ranks));
  if (states.empty()) refuse("there is no saved state");
  for (const auto& [name, tensor] : impl_->tensors)
    if (tensor->operation().busy()) refuse(fmt::format("a call of \"{}\" is under way", name));
  // Every rank reads all states, even those that it does not use. All ranks therefore throw the same error.
  std::vector<std::map<std::string, ResidualState>> saved;
  for (const auto& state : states) saved.push_back(read_state(state));
  for (const auto& tensors : saved)
    if (tensors.size() != saved[0].size()) refuse("the saved states disagree about what tensors there are");
  for (const auto& tensors : saved)
    for (const auto& [name, state] : tensors)
      if (const auto other = saved[0].find(name);
          other == saved[0].end() || other->second.count != state.count || other->second.calls != state.calls)
        refuse(fmt::format("the saved states disagree about \"{}\"", name));
      // The residual is shorter than any slice of a tensor that was divided among the saved ranks.
      else if (!state.residual.empty() && state.residual.size() < state.count / saved.size())
        refuse(
            fmt::format("the saved states of \"{}\" keep {} of {} elements", name, state.residual.size(), state.count));
  std::map<std::string, std::unique_ptr<SparseTensor>, std::less<>> tensors;
  for (const auto& [name, first] : saved[0]) {
    auto tensor = std::make_unique<SparseTensor>(name, impl_->options);
    ResidualState& state = tensor->residual().state();
    if (saved.size() == static_cast<std::size_t>(ranks)) {
      state = std::move(saved[static_cast<std::size_t>(rank)][name]);
      // The next call moves the state to the owner of the slice, which may now be another rank of the host.
      state.slices = 0;
    } else {
      state.count = first.count;
      state.calls = first.calls;
      for (auto from = static_cast<std::size_t>(rank); from < saved.size(); from += static_cast<std::size_t>(ranks))
        add_pending(state, saved[from][name]);
    }
    tensors.emplace(name, std::move(tensor));
  }
  impl_->tensors = std::move(tensors);
}

}  // namespace collectives
