// Wrapper of a communicator, by which conformance suites make calls. The suites pass buffers in CPU memory. With a
// BufferPlacement, each call copies them to other memory, such as that of a GPU, works on the copies, and copies the
// result back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/communicator.hpp"

namespace collectives::testing {

/// Source of other memory for buffers, such as that of a GPU. The CPU does not touch that memory.
class BufferPlacement {
 public:
  virtual ~BufferPlacement() = default;
  virtual std::byte* take(std::size_t bytes) = 0;
  virtual void give_back(std::byte* memory) = 0;
  /// Copy to and from the other memory, in the order of `stream` if there is one. download() waits for its copy.
  virtual void upload(std::byte* to, const void* from, std::size_t bytes, std::optional<void*> stream) = 0;
  virtual void download(void* to, const std::byte* from, std::size_t bytes, std::optional<void*> stream) = 0;
  /// Returns the stream of the next call.
  virtual std::optional<void*> next_stream() = 0;
};

class Subject {
 public:
  explicit Subject(Communicator& comm, BufferPlacement* placement = nullptr) : comm_(comm), placement_(placement) {}

  /// The buffers of one call, in the memory in which the call works on them.
  class Buffers {
   public:
    Buffers(BufferPlacement* placement, ConstBuffer in, Buffer out) : placement_(placement), in_(in), out_(out) {
      if (placement == nullptr) return;
      stream_ = placement->next_stream();
      if (contains(in, out)) {
        input_ = send(in);
        output_ = there(out, in, input_);
      } else {
        output_ = send(out);
        input_ = contains(out, in) ? there(in, out, output_) : send(in);
      }
    }
    Buffers(Buffers&& other) noexcept
        : placement_(std::exchange(other.placement_, nullptr)),
          in_(other.in_),
          out_(other.out_),
          input_(other.input_),
          output_(other.output_),
          stream_(other.stream_),
          taken_(std::exchange(other.taken_, {})) {}
    Buffers& operator=(Buffers&&) = delete;
    ~Buffers() {
      for (std::byte* memory : taken_) placement_->give_back(memory);
    }

    ConstBuffer input() const { return placement_ == nullptr ? in_ : ConstBuffer(input_, in_.count, in_.type); }
    Buffer output() const { return placement_ == nullptr ? out_ : Buffer(output_, out_.count, out_.type); }
    Options options(Options options) const {
      if (stream_) options.stream = stream_;
      return options;
    }
    void fetch() {
      // Waits also without a result, because the GPU may read the input until then.
      if (placement_ != nullptr) placement_->download(out_.data, output_, out_.bytes(), stream_);
    }

   private:
    static bool contains(ConstBuffer one, ConstBuffer other) {
      const auto begin = reinterpret_cast<std::uintptr_t>(one.data), at = reinterpret_cast<std::uintptr_t>(other.data);
      return one.count > 0 && other.count > 0 && begin <= at && at + other.bytes() <= begin + one.bytes();
    }
    static std::byte* there(ConstBuffer part, ConstBuffer whole, std::byte* of_whole) {
      return of_whole + (static_cast<const std::byte*>(part.data) - static_cast<const std::byte*>(whole.data));
    }
    /// Copies to an address with the alignment of the buffer.
    std::byte* send(ConstBuffer buffer) {
      if (buffer.count == 0) return nullptr;
      taken_.push_back(placement_->take(buffer.bytes() + 64));
      std::byte* const at = taken_.back() + reinterpret_cast<std::uintptr_t>(buffer.data) % 64;
      placement_->upload(at, buffer.data, buffer.bytes(), stream_);
      return at;
    }

    BufferPlacement* placement_;
    ConstBuffer in_;
    Buffer out_;
    std::byte *input_ = nullptr, *output_ = nullptr;
    std::optional<void*> stream_;
    std::vector<std::byte*> taken_;
  };

  /// A Work whose result is in the caller's buffer after wait().
  class Pending {
   public:
    Pending(Buffers buffers, Work work) : buffers_(std::move(buffers)), work_(std::move(work)) {}
    void wait() {
      work_.wait();
      buffers_.fetch();
    }

   private:
    Buffers buffers_;
    Work work_;
  };

  Rank rank() const { return comm_.rank(); }
  int size() const { return comm_.size(); }
  Communicator& communicator() const { return comm_; }

  void all_reduce(ConstBuffer in, Buffer out, ReduceOp op = ReduceOp::sum, const Options& options = {}) {
    perform(in, out, [&](const Buffers& b) { comm_.all_reduce(b.input(), b.output(), op, b.options(options)); });
  }
  void all_reduce(Buffer data, ReduceOp op = ReduceOp::sum, const Options& options = {}) {
    all_reduce(data, data, op, options);
  }
  Pending all_reduce_async(ConstBuffer in, Buffer out, ReduceOp op = ReduceOp::sum, const Options& options = {}) {
    return begin(in, out, [&](const Buffers& b) {
      return comm_.all_reduce_async(b.input(), b.output(), op, b.options(options));
    });
  }
  void reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op = ReduceOp::sum) {
    perform(in, out, [&](const Buffers& b) { comm_.reduce_scatter(b.input(), b.output(), op, b.options({})); });
  }
  void reduce_scatter_v(ConstBuffer in, Buffer out, std::span<const std::size_t> counts, ReduceOp op = ReduceOp::sum) {
    perform(in, out,
            [&](const Buffers& b) { comm_.reduce_scatter_v(b.input(), b.output(), counts, op, b.options({})); });
  }
  void all_gather(ConstBuffer in, Buffer out) {
    perform(in, out, [&](const Buffers& b) { comm_.all_gather(b.input(), b.output(), b.options({})); });
  }
  void all_gather_v(ConstBuffer in, Buffer out, std::span<const std::size_t> counts) {
    perform(in, out, [&](const Buffers& b) { comm_.all_gather_v(b.input(), b.output(), counts, b.options({})); });
  }
  void all_to_all(ConstBuffer in, Buffer out) {
    perform(in, out, [&](const Buffers& b) { comm_.all_to_all(b.input(), b.output(), b.options({})); });
  }
  void gather(ConstBuffer in, Buffer out, Rank root) {
    perform(in, out, [&](const Buffers& b) { comm_.gather(b.input(), b.output(), root, b.options({})); });
  }
  void scatter(ConstBuffer in, Buffer out, Rank root) {
    perform(in, out, [&](const Buffers& b) { comm_.scatter(b.input(), b.output(), root, b.options({})); });
  }
  void scan(ConstBuffer in, Buffer out, ReduceOp op = ReduceOp::sum) {
    perform(in, out, [&](const Buffers& b) { comm_.scan(b.input(), b.output(), op, b.options({})); });
  }
  void exclusive_scan(ConstBuffer in, Buffer out, ReduceOp op = ReduceOp::sum) {
    perform(in, out, [&](const Buffers& b) { comm_.exclusive_scan(b.input(), b.output(), op, b.options({})); });
  }
  void broadcast(ConstBuffer in, Buffer out, Rank root) {
    perform(in, out, [&](const Buffers& b) { comm_.broadcast(b.input(), b.output(), root, b.options({})); });
  }
  void broadcast(Buffer data, Rank root) { broadcast(data, data, root); }
  Pending broadcast_async(ConstBuffer in, Buffer out, Rank root) {
    return begin(in, out,
                 [&](const Buffers& b) { return comm_.broadcast_async(b.input(), b.output(), root, b.options({})); });
  }
  void reduce(ConstBuffer in, Buffer out, ReduceOp op, Rank root) {
    perform(in, out, [&](const Buffers& b) { comm_.reduce(b.input(), b.output(), op, root, b.options({})); });
  }
  void barrier() { comm_.barrier(); }

 private:
  template <class Call>
  void perform(ConstBuffer in, Buffer out, Call&& call) {
    Buffers buffers(placement_, in, out);
    call(buffers);
    buffers.fetch();
  }
  template <class Call>
  Pending begin(ConstBuffer in, Buffer out, Call&& call) {
    Buffers buffers(placement_, in, out);
    Work work = call(buffers);
    return {std::move(buffers), std::move(work)};
  }

  Communicator& comm_;
  BufferPlacement* placement_;
};

}  // namespace collectives::testing
