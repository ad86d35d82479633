// ValuePlaces: computes the addresses of the values of one job. A job is one operation of the executor, or one phase of
// an operation. The values of a job lie in the input buffer, in the output buffer, or in scratch memory for a partial
// result.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/types.hpp"
#include "execution/job.hpp"
#include "steps/step.hpp"

namespace collectives {

class ValuePlaces {
 public:
  /// Starts with the buffers of `job`, which has no partial result yet.
  void start(const Job& job) noexcept {
    job_ = &job;
    element_ = element_bytes_of(job.type, job.op);
    worked_ = {};
    work_at_ = nullptr;
  }

  /// Returns the address of a range; null for Place::nowhere. The range {} gives the address of element 0.
  std::byte* address(Place place, Range range) const {
    switch (place) {
      case Place::nowhere: return nullptr;
      case Place::input: return moved(job_->input, range.first * element_, 0);  // the input is never written
      case Place::output: return moved(job_->output, range.first * element_, 0);
      case Place::work: return moved(work_at_, range.first * element_, worked_.first * element_);
    }
    return nullptr;
  }

  /// Takes memory of `engine` for a partial result of `range`. Keeps the current memory if it is for a range that
  /// contains `range`.
  template <class Engine>
  void keep_as_work(Range range, Engine& engine) {
    if (range.first >= worked_.first && range.first + range.count <= worked_.first + worked_.count) return;
    worked_ = range;
    work_at_ = engine.work(range.count * element_);
  }

 private:
  /// Returns `base` moved forward and then back by the given bytes. Computes with integers, because `base` may be an
  /// address outside of any buffer (job.hpp).
  static std::byte* moved(const std::byte* base, std::size_t forward_bytes, std::size_t back_bytes) {
    return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(base) + forward_bytes - back_bytes);
  }

  const Job* job_ = nullptr;
  std::size_t element_ = 1;       // bytes of one value
  std::byte* work_at_ = nullptr;  // address of the current partial result
  Range worked_;                  // range of the vector that `work_at_` holds
};

}  // namespace collectives
