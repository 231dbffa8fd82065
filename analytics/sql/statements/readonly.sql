SELECT toUInt64(getSetting('readonly'))
