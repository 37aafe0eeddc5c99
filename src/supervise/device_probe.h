#pragma once

#include <string>

#include "exec/card_choice.h"

namespace hearth::supervise {

/// Gives a card memory and one kernel, and compares what that makes with the known result; what came
/// instead, or nothing. UserError where there is no such card or it does not even open. For a process of its
/// own: what a card does to the one that opens it is not known.
std::string probe_card(const exec::CardWish& wish);

}  // namespace hearth::supervise
