#pragma once

#include <string>
#include <vector>

#include "hub/upload.h"

namespace hearth::run {

/// Returns the files of a run, or of a model folder, to publish as the repository `repo` ("ORG/NAME"): the
/// best weights, configuration, tokenizer and classes, and README.md with a model card unless the folder has
/// one. Samples, reports, logs and checkpoints stay on this machine. Paths of this machine in configuration
/// files are replaced by names on the hub, or by file names. UserError if there are no weights.
std::vector<hub::UploadFile> files_to_share(const fs::path& folder, const std::string& repo);

}  // namespace hearth::run
