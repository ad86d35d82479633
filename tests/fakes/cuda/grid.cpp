// Runs a CUDA kernel on the CPU. A kernel runs once for each thread of a grid, which consists of blocks of threads.
//
// The threads of a block are contexts (ucontext) with stacks of their own. A thread that ends without waiting at a
// barrier hands its stack to the next thread. A block therefore needs only as many stacks as threads that wait. A
// kernel without barriers runs like a loop.
#include "grid.hpp"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

__thread uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace fake_cuda {
namespace {

constexpr std::size_t kStack = 256 << 10;  // bytes of a stack

/// A stack, and the context at which its thread continues.
struct Fiber {
  Fiber() : stack(::mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (stack == MAP_FAILED) std::abort();
  }
  ~Fiber() { ::munmap(stack, kStack); }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  ucontext_t context{};
  void* stack;
  uint3 place{};                   ///< index of the thread that waits on this stack
  const void* waits_at = nullptr;  ///< barrier at which it waits; null if no thread waits
#if defined(__SANITIZE_THREAD__)
  void* known = __tsan_create_fiber(0);
#endif
};

/// The block that this thread of the CPU runs.
class Block {
 public:
  void run(dim3 size, const std::function<void()>& thread) {
    thread_ = &thread;
    size_ = size;
    threads_ = size.x * size.y * size.z;
    next_ = 0;
    from_the_last_ = blocks_++ % 2 == 1;
    std::size_t waiting = 0;
    while (next_ < threads_) {
      if (waiting == fibers_.size()) fibers_.push_back(std::make_unique<Fiber>());
      begin(*fibers_[waiting]);
      if (fibers_[waiting]->waits_at != nullptr) ++waiting;
    }
    while (waiting > 0) {
      const bool backwards = turns_++ % 2 == 0;
      for (std::size_t i = 0; i < waiting; ++i)
        if (fibers_[i]->waits_at != fibers_[0]->waits_at) {
          std::fprintf(stderr, "stand-in for CUDA: threads of a block wait at two barriers at once\n");
          std::abort();
        }
      for (std::size_t i = 0; i < waiting; ++i) resume(*fibers_[backwards ? waiting - 1 - i : i]);
      std::size_t still = 0;
      for (std::size_t i = 0; i < waiting; ++i)
        if (fibers_[i]->waits_at != nullptr) std::swap(fibers_[still++], fibers_[i]);
      waiting = still;
    }
  }

  void wait(const void* at) {
    Fiber& mine = *current_;
    mine.place = threadIdx;
    mine.waits_at = at;
    switch_to(mine.context, home_, home_known());
    threadIdx = mine.place;
  }

 private:
  void begin(Fiber& fiber) {
    ::getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack;
    fiber.context.uc_stack.ss_size = kStack;
    fiber.context.uc_link = nullptr;
    ::makecontext(&fiber.context, &Block::perform_some, 0);
    resume(fiber);
  }
  void resume(Fiber& fiber) {
    fiber.waits_at = nullptr;
    current_ = &fiber;
#if defined(__SANITIZE_THREAD__)
    home_known_ = __tsan_get_current_fiber();
    switch_to(home_, fiber.context, fiber.known);
#else
    switch_to(home_, fiber.context, nullptr);
#endif
  }
  /// Runs the threads one after another until all have begun.
  static void perform_some();

  void* home_known() const { return home_known_; }
  static void switch_to(ucontext_t& from, ucontext_t& to, [[maybe_unused]] void* known) {
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(known, 0);
#endif
    ::swapcontext(&from, &to);
  }

  const std::function<void()>* thread_ = nullptr;
  dim3 size_;
  unsigned threads_ = 0, next_ = 0, blocks_ = 0, turns_ = 0;
  bool from_the_last_ = false;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  Fiber* current_ = nullptr;
  ucontext_t home_{};
  void* home_known_ = nullptr;
};

Block& this_block() {
  static thread_local Block block;
  return block;
}

void Block::perform_some() {
  Block& block = this_block();
  while (block.next_ < block.threads_) {
    const unsigned begun = block.next_++, number = block.from_the_last_ ? block.threads_ - 1 - begun : begun;
    threadIdx = {number % block.size_.x, number / block.size_.x % block.size_.y,
                 number / block.size_.x / block.size_.y};
    (*block.thread_)();
  }
  switch_to(block.current_->context, block.home_, block.home_known());
}

}  // namespace

void run_grid(dim3 grid, dim3 block, const std::function<void()>& thread) {
  gridDim = {grid.x, grid.y, grid.z};
  blockDim = {block.x, block.y, block.z};
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        this_block().run(block, thread);
      }
}

}  // namespace fake_cuda

void __syncthreads() { fake_cuda::this_block().wait(__builtin_return_address(0)); }
