// Implementation of TopKOnGpu, which performs the GPU's work in an all-reduce with top-k.
//
// In an all-reduce with top-k, a rank sends only the k elements of greatest magnitude of its gradient. It adds the
// other elements to its residual, a vector on the GPU. Later calls may send elements of the residual. The functions of
// this file keep the residual, select elements, and add the received elements of all ranks. A slice is the range of the
// tensor from which this rank selects.
#include "device/top_k_on_gpu.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

#include "base/fork.hpp"
#include "collectives/error.hpp"
#include "compression/top_k/top_k_impl.hpp"
#include "device/drain_stream.hpp"

namespace collectives {

/// Residual of a tensor on the GPU. It may exist longer than the communicator that made it.
class GpuResidual final : public DeviceResidual {
 public:
  GpuResidual(std::shared_ptr<Device> device, std::size_t n, bool with_velocity)
      : device_(std::move(device)), n_(n), values_(*device_, false), pinned_(*device_, true) {
    // Residual and velocity begin at a multiple of 16 bytes, so that kernels access 16 bytes at a time.
    const std::size_t whole_vectors = (n + 3) / 4 * 4;
    values_.grow((with_velocity ? 2 : 1) * whole_vectors * sizeof(float));
    velocity_ = with_velocity ? values_.as<float>() + whole_vectors : nullptr;
    used_ = device_->new_event();
  }
  /// Frees the memory, unless a GPU may still use it. In a forked child, frees nothing, because the parent owns the
  /// memory.
  ~GpuResidual() override {
    bool free = owner_process_.is_current();
    try {
      free = free && idle(kDrainTimeout);
    } catch (const std::exception&) {  // The GPU has failed.
      free = false;
    }
    if (!free) {
      values_.leak();
      pinned_.leak();
    }
    if (owner_process_.is_current()) device_->end_event(used_);
  }
  GpuResidual(const GpuResidual&) = delete;
  GpuResidual& operator=(const GpuResidual&) = delete;

  float* residual() const noexcept { return values_.as<float>(); }
  float* velocity() const noexcept { return velocity_; }
  /// Returns true if a call on `device` can use the residual without a copy. Returns false if another communicator has
  /// made the residual on another GPU, or with another length.
  bool fits(const Device& device, std::size_t n, bool with_velocity) const {
    return owner_process_.is_current() && !returned && device.identity() == device_->identity() && n == n_ &&
           with_velocity == (velocity_ != nullptr);
  }
  /// Makes later work in `stream` wait until all earlier work on the residual, in any stream, is done.
  void wait_for_it(Device::Stream stream) { device_->wait(stream, used_); }
  /// Puts copies of a residual and a velocity from CPU memory into the stream. If a vector in CPU memory is empty or
  /// all zero, clears the vector on the GPU instead.
  void bring(const std::vector<float>& residual, const std::vector<float>& velocity, Device::Stream stream) {
    const auto zero = [](const std::vector<float>& values) {
      return std::ranges::all_of(values, [](float value) { return std::bit_cast<std::uint32_t>(value) == 0; });
    };
    const std::size_t bytes = n_ * sizeof(float);
    const bool with_residual = !zero(residual), with_momentum = velocity_ != nullptr && !zero(velocity);
    pinned_.grow((std::size_t{with_residual} + std::size_t{with_momentum}) * bytes);
    const auto put = [&](float* to, const std::vector<float>& from, bool some, std::size_t at) {
      if (!some) return device_->clear(to, bytes, stream);
      std::memcpy(pinned_.as<std::byte>(at), from.data(), bytes);
      device_->copy(to, pinned_.as<std::byte>(at), bytes, stream);
    };
    put(this->residual(), residual, with_residual, 0);
    if (velocity_ != nullptr) put(velocity_, velocity, with_momentum, with_residual ? bytes : 0);
    use(stream);
  }
  /// Records that the work in `stream` so far uses the residual.
  void use(Device::Stream stream) { device_->record(used_, stream); }

  void read(std::vector<float>& residual, std::vector<float>& velocity) override {
    if (!owner_process_.is_current())
      throw Error(Errc::system, "top-k: what is kept is on the GPU of the process that this one was forked from");
    if (!idle(kDrainTimeout)) throw Error(Errc::system, "top-k: the GPU that has what is kept does not come to an end");
    constexpr std::size_t kAtOnce = std::size_t{16} << 20;
    pinned_.grow(std::min(n_ * sizeof(float), kAtOnce));
    const Copying copying(*device_);
    for (const auto& [from, to] : {std::pair(this->residual(), &residual), std::pair(velocity_, &velocity)}) {
      if (from == nullptr) continue;
      to->resize(n_);
      for (std::size_t at = 0; at < n_; at += kAtOnce / sizeof(float)) {
        const std::size_t bytes = std::min(n_ - at, kAtOnce / sizeof(float)) * sizeof(float);
        device_->copy(pinned_.as<void>(), from + at, bytes, copying.stream);
        use(copying.stream);
        if (!idle(kDrainTimeout)) throw Error(Errc::system, "top-k: the GPU does not give what is kept");
        std::memcpy(to->data() + at, pinned_.as<void>(), bytes);
      }
    }
  }

 private:
  /// Temporary stream.
  struct Copying {
    explicit Copying(Device& the_device) : device(the_device), stream(the_device.new_stream()) {}
    ~Copying() { device.end_stream(stream); }
    Copying(const Copying&) = delete;
    Copying& operator=(const Copying&) = delete;
    Device& device;
    const Device::Stream stream;
  };

  /// Waits at most `patience` until the last work on the residual is done. Returns false if work remains after that.
  /// Throws the error with which the GPU has failed.
  bool idle(std::chrono::milliseconds patience) const {
    const auto until = Clock::now() + patience;
    while (!device_->reached(used_)) {
      if (Clock::now() >= until) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return true;
  }

  using Clock = std::chrono::steady_clock;
  const std::shared_ptr<Device> device_;
  const OwnerProcess owner_process_;
  const std::size_t n_;
  DeviceBuffer values_, pinned_;
  float* velocity_ = nullptr;
  Device::Event used_ = nullptr;
};

TopKOnGpu::TopKOnGpu(std::shared_ptr<Device> device)
    : device_(std::move(device)),
      chosen_(*device_, false),
      scratch_(*device_, false),
      touched_(*device_, false),
      received_(*device_, false),
      chosen_here_(*device_, true),
      received_here_(*device_, true),
      union_size_host_(*device_, true) {}

void TopKOnGpu::leak() noexcept {
  for (DeviceBuffer* buffer :
       {&chosen_, &scratch_, &touched_, &received_, &chosen_here_, &received_here_, &union_size_host_})
    buffer->leak();
}

void TopKOnGpu::begin(SparseTensor& tensor, const SparsePlan& plan, int local, Device::Stream stream) {
  tensor_ = &tensor;
  stream_ = stream;
  slices_ = plan.in_hosts ? plan.slices : 0;
  slice_ = plan.in_hosts ? plan.slice(local) : Range{0, plan.n};
  count_ = plan.n;
  format_ = slice_.count > 0 ? plan.format(plan.in_hosts ? local : 0) : SparseFormat{};
  sent_ = false;
  reserve_buffers(plan);
  adopt_residual();
}

void TopKOnGpu::reserve_buffers(const SparsePlan& plan) {
  const std::size_t chosen = format_.k * (sizeof(std::uint32_t) + sizeof(float));
  chosen_.grow(chosen);
  chosen_here_.grow(std::max(chosen, sizeof(std::uint32_t)));
  union_size_host_.grow(sizeof(std::uint32_t));
  if (format_.n == 0) return;
  scratch_.grow(std::max(device_->kernels().select_scratch_bytes(format_.n, format_.k), sizeof(std::uint32_t)));
  if (touched_.grow(device_->kernels().sparse_scratch_bytes(format_.n)))
    device_->clear(touched_.as<void>(), touched_.bytes(), stream_);
  // Allocates for the largest possible result now. A later allocation might wait for the GPU, while the GPU waits for
  // this rank.
  const std::size_t all = static_cast<std::size_t>(plan.members) * format_.k,
                    received = plan.form == SparseForm::split ? std::min(all, format_.n) : all;
  received_.grow(received * (sizeof(std::uint32_t) + sizeof(float)));
  received_here_.grow(received * (sizeof(std::uint32_t) + sizeof(float)));
}

/// Moves the residual of the tensor to this GPU, unless it is there. Copies it to CPU memory first if it is on another
/// GPU, or after a failed call. Each copy waits at most 10 s.
void TopKOnGpu::adopt_residual() {
  const TopKOptions& options = tensor_->options();
  TensorResidual& residual = tensor_->residual();
  const bool with_velocity = options.momentum > 0;
  const auto bring_to_host = [&] {
    slices_ == 0 ? residual.move_to_host(count_) : residual.move_slice_to_host(count_, slices_, slice_);
  };
  gpu_residual_ = nullptr;
  if (!options.error_feedback || format_.n == 0) return bring_to_host();
  auto* here = dynamic_cast<GpuResidual*>(residual.on_device());
  if (here == nullptr || !residual.keeps(slices_, slice_) || !here->fits(*device_, format_.n, with_velocity)) {
    bring_to_host();
    auto made = std::make_unique<GpuResidual>(device_, format_.n, with_velocity);
    made->bring(residual.state().residual, residual.state().velocity, stream_);
    here = made.get();
    residual.move_to_device(std::move(made));
  }
  here->wait_for_it(stream_);
  gpu_residual_ = here;
}

void TopKOnGpu::choose(const float* gradient) {
  since_ = Clock::now();
  if (format_.n == 0) return;
  const TopKOptions& options = tensor_->options();
  device_->kernels().select({.gradient = gradient,
                             .accumulated = gpu_residual_ != nullptr ? gpu_residual_->residual() : nullptr,
                             .velocity = gpu_residual_ != nullptr ? gpu_residual_->velocity() : nullptr,
                             .n = format_.n,
                             .momentum = options.momentum,
                             .scale = 1,
                             .masking = options.masking},
                            format_.k, indices(), values(), scratch_.as<void>(), stream_);
  sent_ = gpu_residual_ != nullptr;
  device_->copy(chosen_here_.as<void>(), indices(), format_.k * (sizeof(std::uint32_t) + sizeof(float)), stream_);
  if (gpu_residual_ != nullptr) gpu_residual_->use(stream_);
}

void TopKOnGpu::publish_selection() {
  tensor_->operation().set_device_selection(chosen_here_.as<std::uint32_t>(),
                                            chosen_here_.as<float>(format_.k * sizeof(std::uint32_t)),
                                            Clock::now() - since_);
}

/// Adds the rounding errors of the sent values to the residual, once the values have arrived. The buffer of the values
/// is free by then and holds the errors.
void TopKOnGpu::keep_rounding() {
  auto* const here = chosen_here_.as<float>(format_.k * sizeof(std::uint32_t));
  for (std::size_t i = 0; i < format_.k; ++i) {
    const float error = here[i] - static_cast<float>(bfloat16(here[i]));
    here[i] = std::isfinite(error) ? error : 0;
  }
  device_->copy(values(), here, format_.k * sizeof(float), stream_);
  const Device::Term term{indices(), values(), format_.k};
  device_->kernels().sparse_add({&term, 1}, 1, gpu_residual_->residual(), touched_.as<void>(), nullptr, stream_);
  gpu_residual_->use(stream_);
}

void TopKOnGpu::add_up(float* sum) {
  since_ = Clock::now();
  if (format_.n == 0) return;
  const SparseExchange::Result& result = tensor_->operation().received();
  union_size_ = result.union_size;
  std::size_t bytes = 0;
  for (const Entries& term : result.terms) bytes += term.count * (sizeof(std::uint32_t) + sizeof(float));
  for (const auto& [range, values] : result.dense) bytes += range.count * sizeof(float);
  received_.grow(bytes);
  received_here_.grow(bytes);
  // The entries are contiguous in pinned memory. One copy therefore moves all of them.
  std::size_t at = 0;
  const auto put = [&](const void* from, std::size_t length) {
    if (length > 0) std::memcpy(received_here_.as<std::byte>(at), from, length);
    return std::exchange(at, at + length);
  };
  terms_.clear();
  for (const Entries& term : result.terms) {
    const std::size_t indices = put(term.indices, term.count * sizeof(std::uint32_t)),
                      values = put(term.values, term.count * sizeof(float));
    terms_.push_back({received_.as<std::uint32_t>(indices), received_.as<float>(values), term.count});
  }
  const std::size_t entries = at;
  for (const auto& [range, values] : result.dense) put(values, range.count * sizeof(float));
  if (entries > 0) device_->copy(received_.as<void>(), received_here_.as<void>(), entries, stream_);
  device_->clear(sum, format_.n * sizeof(float), stream_);
  device_->kernels().sparse_add(terms_, result.divisor, sum, touched_.as<void>(), scratch_.as<std::uint32_t>(),
                                stream_);
  device_->copy(union_size_host_.as<void>(), scratch_.as<void>(), sizeof(std::uint32_t), stream_);
  at = entries;
  for (const auto& [range, values] : result.dense) {
    device_->copy(sum + range.first, received_here_.as<std::byte>(at), range.count * sizeof(float), stream_);
    at += range.count * sizeof(float);
  }
  if (gpu_residual_ != nullptr) gpu_residual_->use(stream_);
}

void TopKOnGpu::publish_sum() {
  sent_ = false;
  if (format_.n == 0) return;
  tensor_->operation().report_device_sum(union_size_.value_or(*union_size_host_.as<std::uint32_t>()),
                                         Clock::now() - since_);
  if (gpu_residual_ != nullptr && format_.values == DataType::bf16) keep_rounding();
}

/// Returns the sent values to the residual, because no rank receives them. Values that the wire type cannot represent
/// are included. The host drops them when it next reads the residual.
void TopKOnGpu::take_back() noexcept {
  if (!std::exchange(sent_, false)) return;
  try {
    const Device::Term term{indices(), values(), format_.k};
    gpu_residual_->returned = true;
    device_->kernels().sparse_add({&term, 1}, 1, gpu_residual_->residual(), touched_.as<void>(), nullptr, stream_);
    gpu_residual_->use(stream_);
  } catch (const std::exception&) {  // The GPU has failed, so the residual is lost.
  }
}

}  // namespace collectives
