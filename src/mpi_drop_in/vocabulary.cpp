// Error texts in the words of MPI. The drop-in is a library that users preload into an MPI program. It performs
// collectives of the program in place of MPI. Error texts therefore name MPI functions such as MPI_Bcast, and types of
// MPI that this library lacks.
#include "mpi_drop_in/vocabulary.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "core/call_record.hpp"
#include "core/collective.hpp"
#include "mpi_drop_in/basic_types.hpp"
#include "mpi_drop_in/decision.hpp"

namespace collectives::drop_in {
namespace {

std::string_view function_of(const Signature& signature) noexcept {
  return kKindNames[static_cast<std::size_t>(kind_of(signature.collective, signature.has_counts))];
}

/// Returns the name of a basic type, or its kind and size.
std::string name_of_basic(std::uint64_t basic) {
  const std::size_t size = bytes_of(basic);
  switch (kind_of(basic)) {
    case BasicKind::signed_integer: return fmt::format("signed integer of {} bytes", size);
    case BasicKind::unsigned_integer: return fmt::format("unsigned integer of {} bytes", size);
    case BasicKind::floating: return fmt::format("float of {} bytes", size);
    case BasicKind::complex: return fmt::format("complex of {} bytes", size);
    case BasicKind::logical: return fmt::format("logical of {} bytes", size);
    case BasicKind::wide_character: return "MPI_WCHAR";
    case BasicKind::byte: return "MPI_BYTE";
    case BasicKind::packed: return "MPI_PACKED";
    case BasicKind::other: break;
  }
  return fmt::format("unknown type of {} bytes", size);
}

std::string elements_of_signature(const Signature& signature) {
  const std::size_t bytes = signature.count * size_of(signature.type);
  const std::uint64_t basic = signature.op_detail;
  if ((basic & kSeveralTypes) == 0) return elements_text(signature, bytes / bytes_of(basic), name_of_basic(basic));
  const bool is_local = signature.has_counts && has_local_counts(signature.collective);
  return fmt::format("{} of several types ({:x})", is_local ? "parts" : fmt::format("{} bytes", bytes),
                     basic >> 32 & 0x7fffffff);
}

constexpr Vocabulary kWords{function_of, elements_of_signature};

}  // namespace

void use_words_of_mpi() noexcept { set_vocabulary(&kWords); }

}  // namespace collectives::drop_in
