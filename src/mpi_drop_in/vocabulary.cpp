// Error texts in the words of MPI. The drop-in, a library that users preload into an MPI program, performs collectives
// of the program in place of MPI. Its error texts therefore name MPI functions such as MPI_Bcast, and types of MPI that
// this library lacks.
#include "mpi_drop_in/vocabulary.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "core/call_record.hpp"
#include "mpi_drop_in/basic_types.hpp"
#include "mpi_drop_in/decision.hpp"

namespace collectives::drop_in {
namespace {

std::string_view function_of(const Signature& signature) noexcept {
  return kKindNames[static_cast<std::size_t>(kind_of(signature.collective, signature.has_counts))];
}

std::string elements_of_signature(const Signature& signature) {
  const std::size_t bytes = signature.count * size_of(signature.type);
  const std::uint64_t basic = signature.op_detail;
  if ((basic & kSeveralTypes) != 0)
    return fmt::format("{} bytes of several types ({:x})", bytes, basic >> 32 & 0x7fffffff);
  const std::size_t size = bytes_of(basic), count = bytes / size;
  switch (kind_of(basic)) {
    case BasicKind::signed_integer: return fmt::format("{} x signed integer of {} bytes", count, size);
    case BasicKind::unsigned_integer: return fmt::format("{} x unsigned integer of {} bytes", count, size);
    case BasicKind::floating: return fmt::format("{} x float of {} bytes", count, size);
    case BasicKind::complex: return fmt::format("{} x complex of {} bytes", count, size);
    case BasicKind::logical: return fmt::format("{} x logical of {} bytes", count, size);
    case BasicKind::wide_character: return fmt::format("{} x MPI_WCHAR", count);
    case BasicKind::byte: return fmt::format("{} x MPI_BYTE", count);
    case BasicKind::packed: return fmt::format("{} x MPI_PACKED", count);
    case BasicKind::other: break;
  }
  return fmt::format("{} x unknown type of {} bytes", count, size);
}

constexpr Vocabulary kWords{function_of, elements_of_signature};

}  // namespace

void use_words_of_mpi() noexcept { set_vocabulary(&kWords); }

}  // namespace collectives::drop_in
