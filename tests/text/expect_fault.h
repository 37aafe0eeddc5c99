#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace hearth::text {

/// Runs `what`, which must throw a UserError, and returns its sentence.
template <typename What>
std::string fault_of(What what) {
  try {
    what();
  } catch (const UserError& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected a UserError";
  return "";
}

}  // namespace hearth::text
