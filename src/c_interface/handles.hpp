// The inside of the C interface: what its handles are, and the one way from a C function into the library and back.
//
//   return guarded(__func__, [&] { require(comm, "comm").comm.barrier(CallOptions(options)); });
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/collectives.h"
#include "collectives/communicator.hpp"
#include "collectives/error.hpp"
#include "communicator/c_bridge.hpp"

struct collectives_communicator {
  collectives::Communicator comm;
  const std::string transport = std::string(comm.transport());
};
struct collectives_threads {
  std::vector<std::unique_ptr<collectives::Bootstrap>> bootstraps;
};
struct collectives_work {
  collectives::Work work;
};
struct collectives_group {
  collectives::Group group;
};
struct collectives_memory {
  collectives::SharedMemory memory;
};
struct collectives_device_memory {
  collectives::DeviceMemory memory;
};
struct collectives_user_op {
  collectives::UserOp op;
};
struct collectives_codec {
  std::unique_ptr<collectives::Codec> codec;
};
struct collectives_top_k {
  collectives::TopK top_k;
  std::string reason;  // that the last report shows
};

namespace collectives::c {

/// Thrown for what the library itself cannot be asked; the text goes after the name of the function.
struct Refused {
  Errc code;
  std::string why;
};

template <class T>
T& require(T* pointer, const char* what) {
  if (pointer == nullptr) throw Refused{Errc::invalid_argument, std::string(what) + " is null"};
  return *pointer;
}

/// Keeps the exception in flight as the last error of this thread. `function`: that was called.
collectives_error keep_error(const char* function) noexcept;

/// Calls call(); what it throws becomes the result.
template <class Call>
collectives_error guarded(const char* function, Call&& call) noexcept {
  try {
    call();
    return COLLECTIVES_SUCCESS;
  } catch (...) {
    return keep_error(function);
  }
}

/// `*out` becomes what make() returns, a std::unique_ptr, or NULL.
template <class Handle, class Make>
collectives_error made(const char* function, Handle** out, const char* what, Make&& make) noexcept {
  return guarded(function, [&] {
    require(out, what) = nullptr;
    *out = make().release();
  });
}

/// get(*handle); `otherwise` if the handle is null.
template <class Handle, class Value, class Get>
Value property(const char* function, const Handle* handle, const char* what, Value otherwise, Get&& get) noexcept {
  Value value = otherwise;
  guarded(function, [&] { value = get(require(handle, what)); });
  return value;
}

/// A copy that collectives_free() ends.
void* copy_out(const void* bytes, std::size_t count);
/// `*text` becomes make(), or NULL.
collectives_error text_out(const char* function, char** text, const char* what,
                           const std::function<std::string()>& make) noexcept;

// ---- values ----

DataType type_of(collectives_data_type);
Collective collective_of(collectives_collective);
/// `zero`: what 0 seconds mean. `what`: the name of the argument.
std::chrono::nanoseconds duration_of(double seconds, std::string_view what, std::chrono::nanoseconds zero = {});

/// Of one call, as the library takes them. What they point to stays the caller's.
class CallOptions : public Options {
 public:
  explicit CallOptions(const collectives_options* options);
  /// With the factor or the user op of the options.
  ReduceOp op(collectives_op) const;

 private:
  std::optional<double> factor_;  // none without options
  const collectives_user_op* user_op_ = nullptr;
};

CommunicatorOptions options_of(const collectives_communicator_options*);
TopKOptions options_of(const collectives_top_k_options*);
/// All fields, those that the program does not know being 0.
collectives_codec_functions functions_of(const collectives_codec_functions*);

// Structs that a program shows to be filled.
void fill(collectives_coding_report* to, const CodingReport&);
/// `reason` is kept elsewhere.
void fill(collectives_top_k_report* to, const TopKReport&, const char* reason);

}  // namespace collectives::c
