// Conversion of bytes to hexadecimal text and back. Ranks exchange JSON texts, which cannot contain binary data.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace collectives {

inline std::string to_hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

/// Returns the bytes from which to_hex() has made `text`. Returns nothing for any other text.
inline std::optional<std::string> from_hex(std::string_view text) {
  if (text.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return std::nullopt;
    if (i % 2 == 0)
      bytes += static_cast<char>(digit << 4);
    else
      bytes.back() = static_cast<char>(bytes.back() | digit);
  }
  return bytes;
}

}  // namespace collectives
