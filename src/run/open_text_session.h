#pragma once

#include "infer/text_session.h"

namespace hearth::run {

/// Opens a language model as commands name it: a model folder, a run or an adapter, whose base model is
/// `base`, or else the one that its config names. Chats use the date and the variables of the run's recipe.
/// UserError for a run on images.
infer::TextSession open_text_session(const fs::path& model, const fs::path& base,
                                     infer::TextSessionOptions options);

}  // namespace hearth::run
