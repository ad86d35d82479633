// Helpers for tests that expect an error.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "collectives/error.hpp"

/// Expects that `text` contains `part`.
#define EXPECT_SAYS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << text

namespace collectives::testing {

/// Returns the error of `call`. Fails the test if it throws none.
template <class F>
Error error_of(F&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(Errc::system, "none");
}

}  // namespace collectives::testing
