// Handles of the C interface, and helpers of its functions. A handle is a struct with an object of the C++ interface. A
// C program sees the handle only as a pointer. A typical function of the C interface is:
//
//   return guarded(__func__, [&] { require(comm, "comm").comm.barrier(CallOptions(options)); });
//
// This function calls one function of the C++ interface, Communicator::barrier(). The helper guarded() catches
// exceptions, and returns an error code. It also stores the error text as the last error of the calling thread. The
// functions copy_of() and filled() in options.cpp copy structs from and to the program.
//
// A struct of the C interface begins with its own size. If a program was compiled with older headers, its struct may
// lack the last fields. The library treats a missing field as 0. New fields can therefore be added at the end of a
// struct, if the value 0 changes nothing. If a program was compiled with newer headers, its struct may have fields that
// the library does not know. The library refuses such a field unless it is 0. The file tests/packaging/c_abi.txt lists
// declarations, values and offsets. A test compares that list with the headers and the exported symbols.
//
// Price: an asynchronous call allocates memory for its handle.
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
#include "communicator/foreign_calls.hpp"

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
struct collectives_persistent {
  collectives::PersistentCall call;
};
struct collectives_group {
  collectives::Group group;
  const collectives::Communicator* comm;
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
  std::string reason;  // Text to which the last report points.
};

namespace collectives::c {

/// Exception that the C interface itself throws to refuse arguments. The error text is the name of the C function, the
/// number of the call, and `why`.
struct Refused {
  Errc code;
  std::string why;
  std::uint64_t number = 0;  ///< number of the call, as other ranks state it; 0: none
};

/// Returns `*pointer`. Throws Refused if `pointer` is null.
template <class T>
T& require(T* pointer, const char* what) {
  if (pointer == nullptr) throw Refused{Errc::invalid_argument, std::string(what) + " is null"};
  return *pointer;
}

/// Stores the exception that is being handled as the last error of this thread, and returns its code. `function` is the
/// name of the C function.
collectives_error keep_error(const char* function) noexcept;

/// Calls call(). If it throws, stores the exception as the last error of this thread, and returns the error's code.
template <class Call>
collectives_error guarded(const char* function, Call&& call) noexcept {
  try {
    call();
    return COLLECTIVES_SUCCESS;
  } catch (...) {
    return keep_error(function);
  }
}

/// Calls call(). If the C interface itself refuses the arguments, publishes `refusal` on `on`, a Communicator or Group.
/// Ranks that perform the call then get an error.
template <class On, class Call>
void refusing(On& on, CallRefusal refusal, Call&& call) {
  try {
    call();
  } catch (Refused& refused) {
    refused.number = refusal.publish(on, refused.why);
    throw;
  }
}

/// Sets `*out` to the result of make(), a std::unique_ptr, or to NULL if make() throws.
template <class Handle, class Make>
collectives_error made(const char* function, Handle** out, const char* what, Make&& make) noexcept {
  return guarded(function, [&] {
    require(out, what) = nullptr;
    *out = make().release();
  });
}

/// Returns get(*handle), or `otherwise` if the handle is null.
template <class Handle, class Value, class Get>
Value property(const char* function, const Handle* handle, const char* what, Value otherwise, Get&& get) noexcept {
  Value value = otherwise;
  guarded(function, [&] { value = get(require(handle, what)); });
  return value;
}

/// Returns a copy that collectives_free() frees.
void* copy_out(const void* bytes, std::size_t count);
/// Sets `*text` to a copy of the result of make(), or to NULL if make() throws.
collectives_error text_out(const char* function, char** text, const char* what,
                           const std::function<std::string()>& make) noexcept;

// ---- values ----

DataType type_of(collectives_data_type);
Collective collective_of(collectives_collective);
/// Converts seconds. 0 seconds become `zero`. `what` is the name of the argument, for errors.
std::chrono::nanoseconds duration_of(double seconds, std::string_view what, std::chrono::nanoseconds zero = {});

/// Options of one call, converted from collectives_options. The objects to which they point still belong to the caller.
class CallOptions : public Options {
 public:
  /// `lists_parts`: whether the call has a list of counts. Other calls refuse displacements.
  explicit CallOptions(const collectives_options* options, bool lists_parts = false);
  /// Returns the op with the factor or the user op of the options.
  ReduceOp op(collectives_op) const;
  /// Returns the displacements of a v-form, one for each rank; null: one part after another.
  const std::size_t* displacements() const noexcept { return displacements_; }

 private:
  std::optional<double> factor_;  // Empty without options.
  const collectives_user_op* user_op_ = nullptr;
  const std::size_t* displacements_ = nullptr;
};

CommunicatorOptions options_of(const collectives_communicator_options*);
TopKOptions options_of(const collectives_top_k_options*);
/// Returns a copy of the program's struct. Fields that the program does not have are 0.
collectives_codec_functions functions_of(const collectives_codec_functions*);

// Functions that fill structs of the program.
void fill(collectives_coding_report* to, const CodingReport&);
/// Makes the report point to `reason`, which the caller keeps.
void fill(collectives_top_k_report* to, const TopKReport&, const char* reason);

}  // namespace collectives::c
