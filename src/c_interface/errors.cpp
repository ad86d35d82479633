// Errors of the C interface. C has no exceptions, so a function of the C interface catches the exceptions of the C++
// interface. It returns an error code, and stores the error text of this thread for collectives_last_error().
//
// This file also has the functions that copy texts and bytes to memory of the program.
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "c_interface/handles.hpp"
#include "collectives/error.hpp"
#include "collectives/version.hpp"

namespace collectives::c {
namespace {

static_assert(int{COLLECTIVES_ERROR_INVALID_ARGUMENT} == static_cast<int>(Errc::invalid_argument));
static_assert(int{COLLECTIVES_ERROR_UNSUPPORTED} == static_cast<int>(Errc::unsupported));
static_assert(int{COLLECTIVES_ERROR_MISMATCH} == static_cast<int>(Errc::mismatch));
static_assert(int{COLLECTIVES_ERROR_TIMEOUT} == static_cast<int>(Errc::timeout));
static_assert(int{COLLECTIVES_ERROR_PEER_LOST} == static_cast<int>(Errc::peer_lost));
static_assert(int{COLLECTIVES_ERROR_ABORTED} == static_cast<int>(Errc::aborted));
static_assert(int{COLLECTIVES_ERROR_BOOTSTRAP} == static_cast<int>(Errc::bootstrap));
static_assert(int{COLLECTIVES_ERROR_SYSTEM} == static_cast<int>(Errc::system));

thread_local Error last_error(Errc{}, "");
const Error no_memory(Errc::system, "out of memory");  // made when the library is loaded, while there is memory

Error error_in_flight(const char* function) {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const Refused& refused) {
    if (refused.number == 0) return Error(refused.code, fmt::format("{}: {}", function, refused.why));
    const std::string label = fmt::format("{} #{}", function, refused.number);
    return Error(refused.code, fmt::format("{}: {}", label, refused.why), kNoRank, kNoRank, label);
  } catch (const std::bad_alloc&) {
    return Error(Errc::system, fmt::format("{}: out of memory", function));
  } catch (const std::exception& error) {
    return Error(Errc::system, fmt::format("{}: {}", function, error.what()));
  } catch (...) {
    return Error(Errc::system, fmt::format("{}: an exception that is no std::exception", function));
  }
}

}  // namespace

collectives_error keep_error(const char* function) noexcept {
  try {
    last_error = error_in_flight(function);
  } catch (const std::bad_alloc&) {
    last_error = no_memory;
  }
  return static_cast<collectives_error>(last_error.code());
}

void* copy_out(const void* bytes, std::size_t count) {
  void* const copy = std::malloc(count);
  if (copy == nullptr && count > 0) throw std::bad_alloc();
  if (count > 0) std::memcpy(copy, bytes, count);
  return copy;
}

collectives_error text_out(const char* function, char** text, const char* what,
                           const std::function<std::string()>& make) noexcept {
  return guarded(function, [&] {
    require(text, what) = nullptr;
    const std::string made = make();
    *text = static_cast<char*>(copy_out(made.c_str(), made.size() + 1));
  });
}

}  // namespace collectives::c

using collectives::c::last_error;

// The names are literals, which end with a null character.
const char* collectives_version(void) { return collectives::version().data(); }
const char* collectives_error_name(collectives_error error) {
  if (error == COLLECTIVES_SUCCESS) return "success";
  const bool known = error > 0 && error <= COLLECTIVES_ERROR_SYSTEM;
  return to_string(known ? static_cast<collectives::Errc>(error) : collectives::Errc{}).data();
}
const char* collectives_last_error(void) { return last_error.what(); }
collectives_error collectives_last_error_code(void) { return static_cast<collectives_error>(last_error.code()); }
int collectives_last_error_rank(void) { return last_error.rank(); }
int collectives_last_error_peer(void) { return last_error.peer(); }
const char* collectives_last_error_operation(void) { return last_error.operation().c_str(); }

void collectives_free(void* text_or_bytes) { std::free(text_or_bytes); }
